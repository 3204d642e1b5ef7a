#include "composer/util/out_of_memory.h"

#include <new>
#include <string_view>

#include <c10/util/Exception.h>

namespace composer {
namespace {

bool mentions_memory(std::string_view text) {
  for (const std::string_view sign : {"out of memory", "can't allocate memory", "ALLOC_FAILED"})
    if (text.find(sign) != std::string_view::npos) return true;
  return false;
}

}  // namespace

bool is_out_of_memory(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const c10::OutOfMemoryError&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const c10::Error& other) {
    return mentions_memory(other.what_without_backtrace());
  } catch (const std::nested_exception& outer) {
    return outer.nested_ptr() && is_out_of_memory(outer.nested_ptr());
  } catch (...) {
    return false;
  }
}

}  // namespace composer

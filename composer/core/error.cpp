#include "composer/core/error.h"

#include <c10/util/Exception.h>

#include "composer/util/no_sigpipe.h"

namespace composer {

// Key functions: the type information of errors that cross the library's border lives here.
Error::~Error() = default;
ConfigError::~ConfigError() = default;
DataError::~DataError() = default;
CheckpointError::~CheckpointError() = default;
RunError::~RunError() = default;

std::string describe(const std::exception& error) {
  std::string text = error.what();
  try {
    std::rethrow_if_nested(error);
  } catch (const c10::Error& cause) {
    text += "\n  because: " + std::string(cause.what_without_backtrace());
  } catch (const std::exception& cause) {
    text += "\n  because: " + describe(cause);
  } catch (...) {
    text += "\n  because: something that is not a std::exception";
  }
  return text;
}

void warn(const std::string& text) {
  const util::NoSigpipe no_sigpipe;  // stderr may be a pipe that nobody reads any more
  TORCH_WARN(text);
}

}  // namespace composer

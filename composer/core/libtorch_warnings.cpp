#include <typeinfo>

#include <c10/util/Exception.h>

#include "composer/core/warning_route.h"

namespace composer::detail {

bool warn_through_libtorch(const std::string& text) {
  c10::WarningHandler* handler = c10::WarningUtils::get_warning_handler();
  // Libtorch's default handler, which prints.
  if (!handler || typeid(*handler) == typeid(c10::WarningHandler)) return false;
  handler->process(c10::Warning(c10::UserWarning(), {__func__, __FILE__, __LINE__}, text, /*verbatim=*/true));
  return true;
}

}  // namespace composer::detail

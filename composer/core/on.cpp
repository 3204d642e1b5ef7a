#include "composer/core/on.h"

namespace composer::detail {

std::string EventCallback::name() const { return "callback on " + std::string(composer::name(event_)); }

}  // namespace composer::detail

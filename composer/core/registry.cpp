#include "composer/core/registry.h"

#include "composer/core/error.h"
#include "composer/core/listed.h"

namespace composer::detail {

void throw_unknown(std::string_view what, std::string_view given, const std::vector<std::string>& known) {
  throw ConfigError(what, " \"", given, "\"; there are: ", known.empty() ? "none" : listed(known));
}

}  // namespace composer::detail

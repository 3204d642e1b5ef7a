#include "composer/core/registry.h"

#include "composer/core/error.h"

namespace composer::detail {

void throw_unknown(std::string_view what, std::string_view given, const std::vector<std::string>& known) {
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  throw ConfigError(what, " \"", given, "\"; there are: ", names.empty() ? "none" : names);
}

}  // namespace composer::detail

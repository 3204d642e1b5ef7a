#include "composer/core/registry.h"

#include <algorithm>

#include "composer/core/error.h"
#include "composer/core/listed.h"

namespace composer::detail {

void throw_unknown(std::string_view what, std::string_view given, const std::vector<std::string>& known) {
  throw ConfigError(what, " \"", given, "\"; there are: ", known.empty() ? "none" : listed(known));
}

void check_unique(std::string_view who, std::vector<std::string> names) {
  std::ranges::sort(names);
  if (!names.empty() && names.front().empty()) throw ConfigError(who, ": a name is empty");
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) throw ConfigError(who, ": \"", *twice, "\" is there twice");
}

}  // namespace composer::detail

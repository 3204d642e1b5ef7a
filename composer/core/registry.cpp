#include "composer/core/registry.h"

#include <algorithm>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/old_names.h"
#include "composer/util/edit_distance.h"
#include "composer/util/letters.h"

namespace composer::detail {

namespace {

// As in "EarlyStopper" and "early_stopper".
std::string without_form(std::string_view name) {
  std::string letters = util::lower(name);
  std::erase(letters, '_');
  return letters;
}

// The known name that another one most likely means, or "".
std::string_view meant_by(std::string_view given, const std::vector<std::string>& known) {
  for (const std::string& name : known)
    if (without_form(name) == without_form(given)) return name;
  const auto is_known = [&](std::string_view name) { return std::ranges::find(known, name) != known.end(); };
  const std::string_view option = known_name(NameKind::OPTION, given, is_known);
  if (!option.empty()) return option;
  if (const std::string_view plugin = known_name(NameKind::PLUGIN, given, is_known); !plugin.empty()) return plugin;
  const auto nearest = util::nearest(given, known);
  return nearest == known.end() ? std::string_view() : std::string_view(*nearest);
}

}  // namespace

void throw_unknown(std::string_view what, std::string_view given, const std::vector<std::string>& known) {
  const std::string all = known.empty() ? "none" : listed(known);
  if (const std::string_view meant = meant_by(given, known); !meant.empty())
    throw ConfigError(what, " \"", given, "\"; did you mean \"", meant, "\"? There are: ", all);
  throw ConfigError(what, " \"", given, "\"; there are: ", all, explain_old_name(given));
}

void check_unique(std::string_view who, std::vector<std::string> names) {
  std::ranges::sort(names);
  if (!names.empty() && names.front().empty()) throw ConfigError(who, ": a name is empty");
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end()) throw ConfigError(who, ": \"", *twice, "\" is there twice");
}

}  // namespace composer::detail

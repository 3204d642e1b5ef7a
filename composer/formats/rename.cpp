#include "composer/formats/rename.h"

#include <optional>
#include <utility>

#include "composer/util/pattern.h"

namespace composer {

std::function<std::string(std::string)> renamer(std::vector<Rename> rules) {
  std::vector<std::optional<util::Pattern>> patterns;  // made once; of prefixes, none
  for (const Rename& rule : rules)
    patterns.push_back(rule.regex ? std::optional<util::Pattern>(std::in_place, "rename", rule.from) : std::nullopt);
  return [rules = std::move(rules), patterns = std::move(patterns)](std::string name) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const auto& [from, to, regex] = rules[i];
      if (regex)
        name = patterns[i]->replace(name, to);
      else if (name.starts_with(from))
        name.replace(0, from.size(), to);
    }
    return name;
  };
}

}  // namespace composer

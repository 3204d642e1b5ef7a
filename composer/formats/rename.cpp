#include "composer/formats/rename.h"

#include <regex>
#include <utility>

#include "composer/core/error.h"

namespace composer {

std::function<std::string(std::string)> renamer(std::vector<Rename> rules) {
  std::vector<std::regex> patterns;  // made once; of prefixes, nothing
  for (const Rename& rule : rules) try {
      patterns.emplace_back(rule.regex ? rule.from : "");
    } catch (const std::regex_error& error) {
      throw ConfigError("rename: ", rule.from, " is not a regular expression: ", error.what());
    }
  return [rules = std::move(rules), patterns = std::move(patterns)](std::string name) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      const auto& [from, to, regex] = rules[i];
      if (regex)
        name = std::regex_replace(name, patterns[i], to);
      else if (name.starts_with(from))
        name.replace(0, from.size(), to);
    }
    return name;
  };
}

}  // namespace composer

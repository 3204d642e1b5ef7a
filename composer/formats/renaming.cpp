#include "composer/formats/renaming.h"

#include <utility>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"

namespace composer {

Renaming::Renaming(std::vector<Rename> rules) {
  for (Rename& rule : rules) {
    std::optional<util::Pattern> pattern;
    if (rule.regex) pattern.emplace("rename", rule.from);
    rules_.push_back({std::move(rule), std::move(pattern)});
  }
}

std::string Renaming::operator()(std::string name) {
  for (auto& [rule, pattern, fitted] : rules_) {
    const bool fits = pattern ? pattern->is_in(name) : name.starts_with(rule.from);
    if (!fits) continue;
    fitted = true;
    if (pattern)
      name = pattern->replace(name, rule.to);
    else
      name.replace(0, rule.from.size(), rule.to);
  }
  return name;
}

std::vector<std::string> Renaming::idle() const {
  std::vector<std::string> idle;
  for (const Rule& one : rules_)
    if (!one.fitted) idle.push_back(one.rule.from);
  return idle;
}

void Renaming::warn_of_idle(const char* option) const {
  for (const Rule& one : rules_)
    if (!one.fitted)
      warn(join(option, ": ", formats::shown(one.rule.from), one.rule.regex ? " fits no name" : " begins no name",
                ", so it changes none"));
}

}  // namespace composer

#pragma once
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/formats/rename.h"
#include "composer/util/pattern.h"

namespace composer {

// Applies rules to names, one after the other, and keeps track of which rules have matched.
class COMPOSER_EXPORT Renaming {
 public:
  explicit Renaming(std::vector<Rename> rules);  // throws ConfigError for an invalid regular expression
  std::string operator()(std::string name);
  std::vector<std::string> idle() const;        // `from` of the rules that have matched no name
  void warn_of_idle(const char* option) const;  // one warning for each unmatched rule

 private:
  struct Rule {
    Rename rule;
    std::optional<util::Pattern> pattern;  // compiled once; unset for a prefix
    bool fitted = false;
  };
  std::vector<Rule> rules_;
};

}  // namespace composer

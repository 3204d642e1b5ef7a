#pragma once
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/formats/rename.h"
#include "composer/util/pattern.h"

namespace composer {

// Rewrites names by rules, one after the other, and knows which of them have fitted none.
class COMPOSER_EXPORT Renaming {
 public:
  explicit Renaming(std::vector<Rename> rules);  // throws ConfigError for an invalid regular expression
  std::string operator()(std::string name);
  std::vector<std::string> idle() const;        // `from` of those that have fitted no name
  void warn_of_idle(const char* option) const;  // one warning for each

 private:
  struct Rule {
    Rename rule;
    std::optional<util::Pattern> pattern;  // made once; of a prefix, none
    bool fitted = false;
  };
  std::vector<Rule> rules_;
};

}  // namespace composer

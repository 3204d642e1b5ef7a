#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"

namespace composer::util {

// A regular expression (ECMAScript), compiled once; copies share it. Only pattern.cpp includes <regex>, which costs the
// compiler three seconds in each source.
class COMPOSER_EXPORT Pattern {
 public:
  enum class Case { EXACT, IGNORED };

  // Throws ConfigError, which names `option`, for a text that is not a regular expression.
  Pattern(std::string_view option, const std::string& text, Case letters = Case::EXACT);

  // The functions below throw ConfigError for a text of more than 4,096 letters, on which the standard library would
  // exhaust the stack.
  bool is_in(std::string_view text) const;
  bool begins(std::string_view text) const;
  // Returns what the groups match if the pattern matches the whole text; otherwise nothing.
  std::optional<std::vector<std::string>> groups_in(const std::string& text) const;
  // Replaces each match by `to`, in which $1 stands for the first group.
  std::string replace(const std::string& text, const std::string& to) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace composer::util

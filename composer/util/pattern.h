#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"

namespace composer::util {

// A regular expression (ECMAScript), compiled once; copies share it. The standard library's is seen by pattern.cpp
// alone: each source that includes <regex> costs a compiler three seconds.
class COMPOSER_EXPORT Pattern {
 public:
  enum class Case { EXACT, IGNORED };

  // `option` is named by the ConfigError that is thrown for a text that is no regular expression.
  Pattern(std::string_view option, const std::string& text, Case letters = Case::EXACT);

  // These throw a ConfigError for a text of more than 4,096 letters: the standard library would exhaust the stack.
  bool is_in(std::string_view text) const;
  bool begins(std::string_view text) const;
  // What its groups match where it matches the whole text; otherwise nothing.
  std::optional<std::vector<std::string>> groups_in(const std::string& text) const;
  // Each match replaced by `to`, in which $1 stands for the first group.
  std::string replace(const std::string& text, const std::string& to) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace composer::util

#pragma once
#include <functional>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer {

// A rule that rewrites names of tensors; rules apply one after the other. `from` at the beginning of a name becomes
// `to`; an empty `from` puts `to` before every name. With `regex`, `from` is a regular expression (ECMAScript) of which
// every match becomes `to`, where $1 is a group.
struct Rename {
  std::string from, to;
  bool regex = false;
};

// Returns a function that applies the rules to a name. Throws ConfigError for an invalid regular expression.
COMPOSER_EXPORT std::function<std::string(std::string)> renamer(std::vector<Rename> rules);

}  // namespace composer

#pragma once
#include <functional>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer {

// Rewrites the names of tensors, one rule after the other: `from` at the beginning of a name becomes `to`; an empty
// `from` puts `to` before every name. As a regular expression (ECMAScript), every match becomes `to`, in which $1 is a
// group.
struct Rename {
  std::string from, to;
  bool regex = false;
};

// What the rules make of a name. Throws ConfigError for what is no regular expression.
COMPOSER_EXPORT std::function<std::string(std::string)> renamer(std::vector<Rename> rules);

}  // namespace composer

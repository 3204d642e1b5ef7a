#pragma once
#include <string>

namespace composer {

// A rule that rewrites names of tensors; several rules apply one after the other. If a name begins with `from`, `to`
// replaces it; an empty `from` puts `to` before every name. With `regex`, `from` is a regular expression (ECMAScript),
// each match of which is replaced by `to`, where $1 stands for the first group.
struct Rename {
  std::string from, to;
  bool regex = false;
};

}  // namespace composer

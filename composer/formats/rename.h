#pragma once
#include <string>

namespace composer {

// A rule that rewrites names of tensors; rules apply one after the other. `from` at the beginning of a name becomes
// `to`; an empty `from` puts `to` before every name. With `regex`, `from` is a regular expression (ECMAScript) of which
// every match becomes `to`, where $1 is a group.
struct Rename {
  std::string from, to;
  bool regex = false;
};

}  // namespace composer

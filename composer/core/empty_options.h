#pragma once
#include <initializer_list>

namespace composer {

// The parameter of a constructor that makes X({}) mean X(). Without it, `{}` matches the options, a copy and a move
// equally well, which is ambiguous; an empty list matches this type best.
class NoOptions {
 public:
  NoOptions() = delete;
};
using EmptyOptions = std::initializer_list<NoOptions>;

}  // namespace composer

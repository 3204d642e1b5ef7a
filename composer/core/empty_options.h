#pragma once
#include <initializer_list>

namespace composer {

// For a constructor that makes X({}) mean X(). Without it `{}` fits the options, a copy and a move equally well, which
// is ambiguous; as an empty list it fits best.
class NoOptions {
 public:
  NoOptions() = delete;
};
using EmptyOptions = std::initializer_list<NoOptions>;

}  // namespace composer

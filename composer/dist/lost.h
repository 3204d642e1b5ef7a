#pragma once
#include <exception>
#include <optional>
#include <string>

namespace composer::dist {

// What the exception that is being handled, or one nested in it, says of the loss of a rank.
struct Loss {
  std::optional<int> rank;  // of a PeerLost; else a collective failed, and libtorch does not say because of whom
  std::string text;
  bool timed_out = false;  // a collective
};
std::optional<Loss> loss();

}  // namespace composer::dist

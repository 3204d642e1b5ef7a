#pragma once
#include <exception>
#include <optional>
#include <string>

namespace composer::dist {

// What the exception that is being handled, or one nested in it, tells about the loss of a rank. nullopt: the
// exception has another cause.
struct Loss {
  // The rank of a PeerLost. Unset: a collective failed, and libtorch does not say because of which rank.
  std::optional<int> rank;
  std::string text;
  bool timed_out = false;  // whether a collective timed out
};
std::optional<Loss> loss();

}  // namespace composer::dist

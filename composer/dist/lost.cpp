#include "composer/dist/lost.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

// Without Gloo's advice.
std::string first_line(const std::exception& error) {
  const std::string text = describe(error);
  return text.substr(0, std::min(text.find('\n'), text.find(". This is typically")));
}

// Gloo, NCCL and the store have no common type of error, and the autograd engine turns some into others.
bool is_of_communication(const std::exception& error, const std::string& line) {
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return true;
  constexpr std::array<std::string_view, 7> kParts{
      "gloo/",      "Connection closed by peer", "Connection reset by peer", "Broken pipe",
      "NCCL error", "NCCL communicator was",     "ncclRemoteError"};
  return std::ranges::any_of(kParts, [&](std::string_view part) { return line.find(part) != std::string::npos; });
}

std::optional<Loss> loss_in(const std::exception& error) {
  if (const auto* lost = dynamic_cast<const PeerLost*>(&error)) return Loss{lost->rank, lost->what()};
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& nested) {
    if (std::optional<Loss> inner = loss_in(nested)) return inner;
  } catch (...) {  // NOLINT(bugprone-empty-catch): it says nothing of ranks
  }
  const std::string line = first_line(error);
  const bool timed_out = line.find("Timed out waiting") != std::string::npos;
  if (is_of_communication(error, line)) return Loss{std::nullopt, line, timed_out};
  return std::nullopt;
}

}  // namespace

std::optional<Loss> loss() {
  try {
    throw;
  } catch (const std::exception& error) {
    std::optional<Loss> found = loss_in(error);
    if (found && found->rank) found->text = error.what();  // with where it happened
    return found;
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace composer::dist

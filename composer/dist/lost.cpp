#include "composer/dist/lost.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

std::string first_line(const std::exception& error) {
  const std::string text = describe(error);
  return text.substr(0, text.find('\n'));
}

// Removes Gloo's advice and the place in its sources.
std::string bare(const std::string& line) {
  const std::string text = line.substr(0, line.find(". This is typically"));
  const std::size_t place = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return place == std::string::npos || text.find("/gloo/") > place ? text : text.substr(place + 2);
}

// Whether the error comes from a collective. Gloo and NCCL have no error type of their own, and the autograd engine
// converts some errors. An Error of this library has another cause, such as an upload whose connection broke.
bool is_of_communication(const std::exception& error, const std::string& line) {
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return true;
  if (dynamic_cast<const Error*>(&error) != nullptr) return false;
  constexpr std::array<std::string_view, 4> kParts{"/gloo/", "NCCL error", "NCCL communicator was", "ncclRemoteError"};
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
  if (is_of_communication(error, line)) return Loss{std::nullopt, bare(line), timed_out};
  return std::nullopt;
}

}  // namespace

std::optional<Loss> loss() {
  try {
    throw;
  } catch (const std::exception& error) {
    std::optional<Loss> found = loss_in(error);
    if (found && found->rank) found->text = error.what();  // includes where it happened
    return found;
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace composer::dist

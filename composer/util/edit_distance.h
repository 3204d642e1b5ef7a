#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <ranges>
#include <string_view>

namespace composer::util {

// How many letters must be added, removed or replaced to turn one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The one of which `given` is probably a misspelling: at most a quarter of its letters differ. The end if there is
// none.
template <std::ranges::forward_range Known, class NameOf = std::identity>
auto nearest(std::string_view given, const Known& known, NameOf name_of = {}) {
  const auto distance = [&](const auto& one) { return edit_distance(given, std::invoke(name_of, one)); };
  const auto found = std::ranges::min_element(known, {}, distance);
  return found != std::ranges::end(known) && distance(*found) <= given.size() / 4 ? found : std::ranges::end(known);
}

}  // namespace composer::util

#pragma once
#include <cstddef>
#include <string_view>

namespace composer::util {

// How many letters must be added, removed or replaced to turn one text into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// Whether `given` is probably a misspelling of `known`: at most a quarter of its letters differ.
bool is_near(std::string_view given, std::string_view known);

}  // namespace composer::util

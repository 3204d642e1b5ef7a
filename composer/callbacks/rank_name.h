#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace composer {
struct State;
}

namespace composer::callbacks {

// What ranks other than 0 append to the name of a file that each rank writes: "-rank1" and so on. Empty on rank 0, and
// where placeholders of these formats tell the ranks apart.
std::string rank_suffix(const State& state, std::initializer_list<std::string_view> formats);

}  // namespace composer::callbacks

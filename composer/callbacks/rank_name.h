#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

namespace composer {
struct State;
}

namespace composer::callbacks {

// The suffix that ranks other than 0 append to the name of a file that each rank writes: "-rank1" and so on. Empty on
// rank 0, and if placeholders in these formats distinguish the ranks.
std::string rank_suffix(const State& state, std::initializer_list<std::string_view> formats);

}  // namespace composer::callbacks

#pragma once
#include <map>
#include <string>

#include "composer/core/state_dict.h"

namespace composer {

// What a checkpoint says of the weights that evaluations use instead of the trained ones, if an algorithm hands out
// some.
struct HandedOut {
  std::string by;  // the algorithm; empty: none does
  std::string at;  // the path of those in the state, by their names in the model; empty: they are not saved so
  std::map<std::string, std::string>
      tied;  // other names of the same weights in the model, and those that they have there

  static HandedOut in(const StateDict& state) {
    HandedOut found;
    StateVisitor visit = StateVisitor::loading(state, "");
    if (visit.has("handed_out")) visit("handed_out", found);
    return found;
  }
  void visit_state(StateVisitor& visit) {
    visit("by", by);
    visit("at", at);
    visit("tied", tied);
  }
};

}  // namespace composer

#pragma once
#include <map>
#include <string>

#include "composer/core/state_dict.h"

namespace composer {

// Describes in a checkpoint the weights that evaluations use instead of the trained ones, if an algorithm hands out
// any.
struct HandedOut {
  std::string by;  // name of the algorithm; empty: none hands out weights
  // Path of these weights in the state, where they have their names in the model; empty: they are not saved that way.
  std::string at;
  std::map<std::string, std::string>
      tied;  // other names of the same weights in the model, and the names that they have at that path

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

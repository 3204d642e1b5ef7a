#pragma once
#include <functional>
#include <utility>

#include "composer/core/algorithm.h"
#include "composer/core/state.h"

namespace composer::test {

// Calls a function at some events.
class AtAlgorithm final : public Algorithm {
 public:
  AtAlgorithm(EventSet events, std::function<void(State&)> act) : events_(events), act_(std::move(act)) {}
  EventSet events() const override { return events_; }
  void apply(Event, State& state, Logger&) override { act_(state); }

 private:
  EventSet events_;
  std::function<void(State&)> act_;
};

}  // namespace composer::test

#pragma once
#include <functional>
#include <utility>

#include "composer/core/algorithm.h"

namespace composer::test {

// An algorithm that calls a function at some events.
class AlgorithmAt final : public Algorithm {
 public:
  using Do = std::function<void(Event, State&)>;
  AlgorithmAt(EventSet events, Do function) : events_(events), do_(std::move(function)) {}
  EventSet events() const override { return events_; }
  void apply(Event event, State& state, Logger&) override { do_(event, state); }

 private:
  EventSet events_;
  Do do_;
};

}  // namespace composer::test

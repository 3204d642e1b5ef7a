#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/algorithm.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/formats/weights.h"

namespace composer::test {

// Averages all weights and buffers after each batch, and hands the averages out for evaluation and export.
class TinyEma final : public Algorithm {
 public:
  EventSet events() const override { return {Event::FIT_START, Event::BATCH_END}; }

  void apply(Event event, State& state, Logger&) override {
    const at::NoGradGuard no_grad;
    if (event == Event::FIT_START && !averages_.empty()) return;
    for (const auto& [name, tensor] : composer::state_dict(*state.model)) {
      if (event == Event::FIT_START)
        averages_.emplace_back(name, tensor.clone());
      else if (at::Tensor& average = average_of(name); average.is_floating_point())
        average.lerp_(tensor, 0.25);
      else
        average.copy_(tensor);
    }
  }

  const WeightsByName* weights_for(WeightsUse use) override {
    ++asked[use];
    return averages_.empty() ? nullptr : &averages_;
  }

  void visit_state(StateVisitor& visit) override {
    std::map<std::string, at::Tensor> by_name(averages_.begin(), averages_.end());
    visit("averages", by_name);
    if (!visit.is_loading()) return;
    if (averages_.empty()) averages_.assign(by_name.begin(), by_name.end());
    for (auto& [name, average] : averages_) average = by_name.at(name);
  }

  const WeightsByName& averages() const { return averages_; }
  WeightsByName& averages() { return averages_; }
  std::map<WeightsUse, int> asked;

 private:
  at::Tensor& average_of(const std::string& name) {
    return std::ranges::find(averages_, name, &WeightsByName::value_type::first)->second;
  }

  WeightsByName averages_;
};

}  // namespace composer::test

#include "composer/trainer/learning_rates.h"

#include <cstddef>
#include <utility>

#include "composer/optim/optimizer.h"
#include "composer/optim/parameter_group.h"

namespace composer {

void LearningRates::begin(const optim::Optimizer& optimizer) {
  made_ = optim::learning_rates(optimizer);
  schedules_.set_base(made_);
}

void LearningRates::begin(SchedulePlan schedules, State& state) {
  schedules.set_base(base());
  schedules_ = std::move(schedules);
  schedules_.begin_run();
  schedules_.apply(state);
}

void LearningRates::read(State& state) {
  if (!state.optimizer) return;
  const std::vector<double> now = optim::learning_rates(*state.optimizer), scheduled = schedules_.rates(state);
  std::vector<double> base = this->base();
  for (std::size_t group = 0; group < now.size(); ++group) {
    if (group >= base.size())
      base.push_back(now[group]);
    else if (now[group] != scheduled[group])
      base[group] = now[group];
  }
  schedules_.set_base(std::move(base));
  schedules_.apply(state);
  leave(state);
}

void LearningRates::leave(const State& state) {
  if (state.optimizer) left_ = optim::learning_rates(*state.optimizer);
}

LearningRates LearningRates::of_fit(const State& state, std::optional<SchedulePlan> schedules) const {
  LearningRates next = *this;
  if (schedules) next.schedules_ = std::move(*schedules);
  std::vector<double> base = this->base();
  const std::vector<double> now = optim::learning_rates(*state.optimizer);
  for (std::size_t group = 0; group < now.size(); ++group)
    if (group >= base.size())
      base.push_back(now[group]);
    else if (group < left_.size() && now[group] != left_[group])
      base[group] = now[group];
  next.schedules_.set_base(std::move(base));
  return next;
}

LearningRates LearningRates::of_trial() const {
  LearningRates trial;
  trial.schedules_.set_base(base());
  return trial;
}

}  // namespace composer

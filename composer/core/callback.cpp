#include "composer/core/callback.h"

#include "composer/core/algorithm.h"
#include "composer/core/call_watcher.h"
#include "composer/core/divided_gradients.h"
#include "composer/core/error_watcher.h"
#include "composer/core/for_all_ranks.h"
#include "composer/core/state_dict.h"

namespace composer {

Callback::~Callback() = default;
CallWatcher::~CallWatcher() = default;
ErrorWatcher::~ErrorWatcher() = default;
ForAllRanks::~ForAllRanks() = default;
bool ForAllRanks::is_for_all_ranks() const { return true; }
DividedGradients::~DividedGradients() = default;

void Callback::run_event(Event event, const State& state, Logger& logger) {
  switch (event) {
#define COMPOSER_X(NAME, method, kind) \
  case Event::NAME:                    \
    return method(state, logger);
    COMPOSER_EVENTS(COMPOSER_X)
#undef COMPOSER_X
  }
}

StateDict Callback::local_hparams() const { return {}; }
void Callback::visit_state(StateVisitor&) {}
void Callback::check_fit(const FitOutline&, const State&) const {}

Algorithm::~Algorithm() = default;
StateDict Algorithm::local_hparams() const { return {}; }
void Algorithm::visit_state(StateVisitor&) {}
bool Algorithm::match(Event, const State&) const { return true; }
Placement Algorithm::placement() const { return Placement::ANY; }
bool Algorithm::required_on_load() const { return false; }
bool Algorithm::mixes_targets() const { return false; }
bool Algorithm::interpolates_loss() const { return false; }
bool Algorithm::takes_part_in_trials() const { return true; }
StepRule* Algorithm::step_rule() { return nullptr; }
const WeightsByName* Algorithm::weights_for(WeightsUse) { return nullptr; }

StepRule::~StepRule() = default;

}  // namespace composer

#include "composer/checkpoint/save_schedule.h"

#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::saving {
namespace {

bool is_complete(const State& state) { return state.max_duration && state.timestamp.reached(*state.max_duration); }

}  // namespace

bool is_finished(const State& state) { return state.stop.asked() && state.stop.kind() == Stop::FINISHED; }

bool SaveSchedule::is_due(Event event, const State& state) const {
  if (is_off_ || !state.previous_timestamp || state.timestamp.batch == last_batch()) return false;
  IntervalMoment moment = state.run->moment(event);
  moment.last_due_batch = last_batch();
  return composer::is_due(interval_, event, state, moment) || (interval_.function() && state.run->interrupted());
}

bool SaveSchedule::is_saved(const State& state, std::uint64_t begun) const {
  if (is_off_ || !state.previous_timestamp) return true;
  // An interval that is a function decides alone in a run that reaches its limit.
  const bool wanted = interval_.function() ? !is_complete(state) : interval_.time().as_double() > 0;
  if (!wanted) return true;
  const bool has_begun = begun != 0 && state.run->weights_version() == begun;
  if (state.timestamp.batch != last_batch()) return has_begun;  // the checkpoints of this moment no longer exist
  if (is_finished(state) && !last_->knows_finish) return false;
  // A stopped run is resumed later, and must not end its epoch again; a complete run is not resumed.
  if (!is_complete(state)) return moment_of(state.timestamp) == last_->moment;
  return has_begun || state.run->weights_version() == last_->weights;  // algorithms may have changed the weights since
}

}  // namespace composer::saving

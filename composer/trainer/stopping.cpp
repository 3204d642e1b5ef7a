#include "composer/trainer/stopping.h"

#include <csignal>

#include "composer/core/state.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/training_time.h"

namespace composer {

void Stopping::begin_fit(bool handle_signals) {
  ending_.emplace();
  if (handle_signals) signals_->begin();
}

void Stopping::end_fit() {
  signals_->end();
  ending_.reset();
}

bool Stopping::decide_with_ranks(bool limit_reached) { return ending_->decide(limit_reached, exchange_with_ranks()); }

void Stopping::decide_last_with_ranks() {
  const bool asked = exchange_with_ranks();
  ending_->decide_last(time_.limit_reached(), asked);
}

bool Stopping::exchange_with_ranks() {
  if (ranks_.alone()) {
    look_for_signal();
    return state_.stop.asked();
  }
  const Ranks::Notices heard = ranks_.exchange_notices(state_.stop, pending_signal(), replicas_.take_saved());
  if (heard.saved) replicas_.compare();
  note_signal(heard.signal);
  return heard.stop || heard.signal != 0;
}

bool Stopping::look_for_signal() {
  if (ranks_.alone()) note_signal(pending_signal());
  return interrupted();
}

void Stopping::note_signal(int signal) {
  if (ending_ && ending_->note(signal))
    state_.stop.ask(signal == SIGINT ? "interrupted (SIGINT)" : "told to end (SIGTERM)");
}

bool Stopping::pauses() const {
  return ending_ && ending_->was_asked() && !time_.limit_reached() && Resumption::reason_to_save(state_.stop).empty();
}

bool Stopping::is_asked_here() const { return state_.stop.asked() || interrupted() || pending_signal() != 0; }

}  // namespace composer

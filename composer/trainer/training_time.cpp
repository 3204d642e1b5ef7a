#include "composer/trainer/training_time.h"

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/step/batch_ranks.h"
#include "composer/trainer/fit_history.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/ranks.h"

namespace composer {

Progress TrainingTime::progress() const {
  return {.now = state_.timestamp,
          .previous = state_.previous_timestamp,
          .limit = fit_ && !fit_->limited ? OptionalTime() : state_.max_duration,
          .iteration_length = state_.iteration_length,
          .epoch_length = fit_ ? fit_->source.epoch_length() : std::nullopt};
}

Seconds TrainingTime::since_last_start() { return ranks_.alone() ? Seconds() : fit_->stopwatch.lap(); }

void TrainingTime::count_batch(const BatchCounts& counts) {
  state_.previous_timestamp = state_.timestamp;
  const Seconds spent = ranks_.alone() ? fit_->stopwatch.lap() : Seconds(counts.seconds);
  state_.timestamp = state_.timestamp.to_next_batch(counts.samples, counts.tokens, spent);
  fits_.unfinished = {Unfinished::END, Event::BATCH_END, Event::BATCH_CHECKPOINT};
  rates_.schedules().apply(state_);
  if (!limit_reached()) fit_->source.stage_next();
}

void TrainingTime::count_epoch() {
  state_.previous_timestamp = state_.timestamp;
  state_.timestamp = state_.timestamp.to_next_epoch();
  fits_.unfinished = {Unfinished::END, Event::EPOCH_END, Event::EPOCH_CHECKPOINT};
  fit_->source.lose_place();
  rates_.schedules().apply(state_);
  rates_.schedules().observe(state_, fit_->source.feed().label());
}

void TrainingTime::count_iteration() {
  state_.previous_timestamp = state_.timestamp;
  state_.timestamp = state_.timestamp.to_next_iteration();
  fits_.unfinished = {Unfinished::END, Event::ITERATION_END, Event::ITERATION_CHECKPOINT};
  fit_->source.lose_place();
  rates_.schedules().apply(state_);
  if (state_.iteration_length->unit() == TimeUnit::TOKEN && state_.timestamp.epoch == 0 && state_.max_duration &&
      state_.max_duration->unit() == TimeUnit::EPOCH)
    throw ConfigError("iteration_length: one of ", *state_.iteration_length,
                      " ends within the first epoch and starts the loader again, so a max_duration of ",
                      *state_.max_duration, " would never be reached");
}

void TrainingTime::log_epoch() const {
  if (!logger_.empty()) logger_.log_metrics({{"time/epoch", state_.timestamp.epoch}});
}

void TrainingTime::log_batch() const {
  if (logger_.empty()) return;
  const Timestamp& now = state_.timestamp;
  logger_.log_metrics({{"time/batch", now.batch},
                       {"time/sample", now.sample},
                       {"time/batch_in_epoch", now.batch_in_epoch},
                       {"time/sample_in_epoch", now.sample_in_epoch}});
  if (fit_->source.feed().tokens() > 0 || now.token > 0)  // a rank may have no tokens of a small last batch
    logger_.log_metrics({{"time/token", now.token}, {"time/token_in_epoch", now.token_in_epoch}});
}

void TrainingTime::log_last() const {
  if (logger_.empty()) return;
  const Timestamp& now = state_.timestamp;
  logger_.log_metrics({{"time/epoch", now.epoch},
                       {"time/batch", now.batch},
                       {"time/sample", now.sample},
                       {"time/batch_in_epoch", now.batch_in_epoch},
                       {"time/sample_in_epoch", now.sample_in_epoch}});
  if (now.token > 0) logger_.log_metrics({{"time/token", now.token}, {"time/token_in_epoch", now.token_in_epoch}});
}

}  // namespace composer

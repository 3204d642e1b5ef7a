// What is counted and logged between the events of loop.cpp.
#include <csignal>

#include "composer/core/error.h"
#include "composer/trainer/impl.h"

namespace composer {

Progress Trainer::Impl::progress() const {
  return {.now = state.timestamp,
          .previous = state.previous_timestamp,
          .limit = fit && !fit->limited ? OptionalTime() : state.max_duration,
          .iteration_length = state.iteration_length,
          .epoch_length = fit ? fit->source.epoch_length() : std::nullopt};
}

bool Trainer::Impl::next_batch() {
  std::optional<Batch> batch = fit->source.next(progress().loader_epoch(), state.timestamp.batch_in_epoch, [this] {
    state.batch.clear();
    train_step.forget_batch();
  });
  if (batch) state.batch = std::move(*batch);
  state.dataloader_len = fit->source.epoch_length();
  return batch.has_value();
}

bool Trainer::Impl::next_batch_aside(Feed& feed, Timestamp& timestamp) {
  if (timestamp.batch == 0) aside_stopwatch.lap();
  std::optional<Batch> batch = feed.next();
  if (fit) fit->source.lose_place_of(feed.loader());
  if (batch)
    state.batch = std::move(*batch);
  else if (timestamp.batch == 0)
    warn(join(feed.label(), " loader: gave no batch, so there is nothing to measure"));
  return batch.has_value();
}

void Trainer::Impl::count_batch_aside(const Feed& feed, Timestamp& timestamp) {
  timestamp = timestamp.to_next_batch(feed.samples(), feed.tokens(), aside_stopwatch.lap());
}

void Trainer::Impl::count_batch() {
  const Feed& feed = fit->source.feed();
  state.previous_timestamp = state.timestamp;
  state.timestamp = state.timestamp.to_next_batch(feed.samples(), feed.tokens(), fit->stopwatch.lap());
  owed = {Owed::END, Event::BATCH_END, Event::BATCH_CHECKPOINT};
  schedules.apply(state);
  if (!progress().limit_reached()) fit->source.stage_next();
}

void Trainer::Impl::count_epoch() {
  state.previous_timestamp = state.timestamp;
  state.timestamp = state.timestamp.to_next_epoch();
  owed = {Owed::END, Event::EPOCH_END, Event::EPOCH_CHECKPOINT};
  fit->source.lose_place();
  schedules.apply(state);
  schedules.observe(state, fit->source.feed().label());
}

void Trainer::Impl::count_iteration() {
  state.previous_timestamp = state.timestamp;
  state.timestamp = state.timestamp.to_next_iteration();
  owed = {Owed::END, Event::ITERATION_END, Event::ITERATION_CHECKPOINT};
  fit->source.lose_place();
  schedules.apply(state);
  if (state.iteration_length->unit() == TimeUnit::TOKEN && state.timestamp.epoch == 0 && state.max_duration &&
      state.max_duration->unit() == TimeUnit::EPOCH)
    throw ConfigError("iteration_length: one of ", *state.iteration_length,
                      " ends within the first epoch and starts the loader again, so a max_duration of ",
                      *state.max_duration, " would never be reached");
}

void Trainer::Impl::log_epoch() {
  if (!logger.empty()) logger.log_metrics({{"time/epoch", state.timestamp.epoch}});
}

void Trainer::Impl::log_batch_time() {
  if (logger.empty()) return;
  const Timestamp& now = state.timestamp;
  logger.log_metrics({{"time/batch", now.batch},
                      {"time/sample", now.sample},
                      {"time/batch_in_epoch", now.batch_in_epoch},
                      {"time/sample_in_epoch", now.sample_in_epoch}});
  if (fit->source.feed().tokens() > 0)
    logger.log_metrics({{"time/token", now.token}, {"time/token_in_epoch", now.token_in_epoch}});
}

void Trainer::Impl::log_final_time() {
  if (logger.empty()) return;
  const Timestamp& now = state.timestamp;
  logger.log_metrics({{"time/epoch", now.epoch},
                      {"time/batch", now.batch},
                      {"time/sample", now.sample},
                      {"time/batch_in_epoch", now.batch_in_epoch},
                      {"time/sample_in_epoch", now.sample_in_epoch}});
  if (now.token > 0) logger.log_metrics({{"time/token", now.token}, {"time/token_in_epoch", now.token_in_epoch}});
}

// Notes a signal, if one has come; true: this fit is interrupted.
bool Trainer::Impl::poll_signals() {
  if (!fit) return false;
  if (fit->ending.note(signals->pending()))
    state.stop.ask(fit->ending.signal() == SIGINT ? "interrupted (SIGINT)" : "told to end (SIGTERM)");
  return fit->ending.interrupted();
}

}  // namespace composer

// What is counted, logged and decided between the events of loop.cpp.
#include <csignal>

#include "composer/core/error.h"
#include "composer/trainer/impl.h"

namespace composer {

AsideScope::AsideScope(State& state, const Feed& feed)
    : lease_(feed.lease()),
      state_(state),
      label_(std::exchange(state.dataloader_label, feed.label())),
      len_(std::exchange(state.dataloader_len, feed.num_batches())),
      had_loader_(std::exchange(state.has_dataloader, true)),
      modes_(*state.model),
      batch_(state.batch) {
  state.model->eval();
}

AsideScope::~AsideScope() {
  state_.dataloader_label = std::move(label_);
  state_.dataloader_len = len_;
  state_.has_dataloader = had_loader_;
  state_.batch = std::move(batch_);
  modes_.restore();
}

bool Trainer::Impl::next_batch() {
  train.forget_batch();
  if (given_batch) {
    state.batch = std::move(*given_batch);
    given_batch.reset();
    train.prepare(state.batch);
    return true;
  }
  if (!train.loader()) throw ConfigError("Trainer::step: there is no train_dataloader; call step(batch)");
  if (!std::exchange(positioned, true)) train.seek(state.timestamp.epoch, state.timestamp.batch_in_epoch);
  if (train.sure_of_next()) {  // it can have the memory of the last one
    state.batch.clear();
    train_step.forget_batch();
  }
  std::optional<Batch> batch = train.next();
  if (batch) {
    state.batch = std::move(*batch);
    return true;
  }
  if (state.timestamp.batch_in_epoch == 0)
    throw DataError(train.label(), " loader: epoch ", state.timestamp.epoch,
                    " has no batch; is the data set empty, or ", "smaller than a batch with drop_last?");
  return false;
}

bool Trainer::Impl::next_batch_aside(Feed& feed, Timestamp& timestamp) {
  if (timestamp.batch == 0) aside_stopwatch.lap();
  std::optional<Batch> batch = feed.next();
  if (feed.loader() == train.loader()) positioned = false;
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
  state.previous_timestamp = state.timestamp;
  state.timestamp = state.timestamp.to_next_batch(train.samples(), train.tokens(), stopwatch.lap());
  schedules.apply(state);
  if (positioned && !state.timestamp.reached(*state.max_duration)) train.stage_next();
}

void Trainer::Impl::count_epoch() {
  state.previous_timestamp = state.timestamp;
  state.timestamp = state.timestamp.to_next_epoch();
  positioned = false;
  schedules.apply(state);
  schedules.observe(state, train.label());
}

void Trainer::Impl::count_iteration() {
  state.previous_timestamp = state.timestamp;
  state.timestamp = state.timestamp.to_next_iteration();
  positioned = false;
  schedules.apply(state);
  if (state.iteration_length->unit() == TimeUnit::TOKEN && state.timestamp.epoch == 0 &&
      state.max_duration->unit() == TimeUnit::EPOCH)
    throw ConfigError("iteration_length: one of ", *state.iteration_length,
                      " ends within the first epoch and starts the ", "loader again, so a max_duration of ",
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
  if (train.tokens() > 0) logger.log_metrics({{"time/token", now.token}, {"time/token_in_epoch", now.token_in_epoch}});
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

bool Trainer::Impl::interrupted() {
  if (const int signal = fitting ? signals.pending() : 0; interrupted_by == 0 && signal != 0) {
    interrupted_by = signal;
    state.stop.ask(interrupted_by == SIGINT ? "interrupted (SIGINT)" : "told to end (SIGTERM)");
  }
  return interrupted_by != 0;
}

// Asked by the threads that write, too.
std::optional<Seconds> Trainer::Impl::time_left() const {
  const std::optional<Seconds> since = signals.since();
  return since ? std::optional(options.grace_period - *since) : std::nullopt;
}

bool Trainer::Impl::limit_reached() {
  return interrupted() || state.stop.asked() || state.timestamp.reached(*state.max_duration);
}

bool Trainer::Impl::epoch_is_complete() const { return train.num_batches() == state.timestamp.batch_in_epoch; }

bool Trainer::Impl::token_iteration_is_over() const {
  return state.iteration_length && state.iteration_length->unit() == TimeUnit::TOKEN &&
         state.timestamp.token_in_iteration >= state.iteration_length->count();
}

bool Trainer::Impl::epoch_iteration_is_over() const {
  return state.iteration_length && state.iteration_length->unit() == TimeUnit::EPOCH &&
         state.timestamp.epoch_in_iteration >= state.iteration_length->count();
}

// What has just ended, of which intervals tell whether they are due. Something has been counted.
IntervalMoment Trainer::Impl::moment_of(Event event) const {
  IntervalMoment moment{.previous = *state.previous_timestamp,
                        .now = state.timestamp,
                        .max_duration = state.max_duration,
                        .dataloader_len = state.dataloader_len};
  if (event == Event::BATCH_END || event == Event::BATCH_CHECKPOINT) moment.boundary = Boundary::BATCH;
  if (event == Event::EPOCH_END || event == Event::EPOCH_CHECKPOINT) moment.boundary = Boundary::EPOCH;
  if (event == Event::ITERATION_END || event == Event::ITERATION_CHECKPOINT) moment.boundary = Boundary::ITERATION;
  return moment;
}

std::vector<EvalRun*> Trainer::Impl::due(Event event) {
  std::vector<EvalRun*> runs;
  if (evaluators.empty() || !state.previous_timestamp) return runs;
  IntervalMoment moment = moment_of(event);
  moment.last = event == Event::FIT_END && limit_reached();
  for (EvalRun& run : evaluators) {  // each is asked, so that functions with a memory hear of every event
    moment.last_due_batch = run.last_due_batch;
    const Interval::Function* function = run.interval.function();
    if (function ? !(*function)(event, state) : !interval_due(run.interval.time(), moment)) continue;
    run.last_due_batch = state.timestamp.batch;
    runs.push_back(&run);
  }
  if (!interrupted()) return runs;
  if (event != Event::FIT_END) postpone(runs);  // at the end of the fit, it has not ended but is interrupted
  return {};
}

// A checkpoint is about to be written: who goes on from it makes up for these evaluations first.
void Trainer::Impl::postpone(const std::vector<EvalRun*>& runs) {
  for (const EvalRun* run : runs) pending_evaluations.push_back(run->feed.label());
}

}  // namespace composer

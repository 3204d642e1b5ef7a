// What is counted and logged between the events of loop.cpp.
#include <algorithm>
#include <csignal>

#include "composer/core/error.h"
#include "composer/core/rank_seed.h"
#include "composer/trainer/impl.h"

namespace composer {

Progress Trainer::Impl::progress() const {
  return {.now = state.timestamp,
          .previous = state.previous_timestamp,
          .limit = fit && !fit->limited ? OptionalTime() : state.max_duration,
          .iteration_length = state.iteration_length,
          .epoch_length = fit ? data.epoch_length(fit->source, ranks) : std::nullopt};
}

bool Trainer::Impl::next_batch() {
  std::optional<Batch> batch = fit->source.has_loader() && ranks.have_own_loaders()
                                   ? next_of_own_loader()
                                   : read_batch(state.timestamp.batch_in_epoch);
  if (batch) state.batch = std::move(*batch);
  state.dataloader_len = data.epoch_length(fit->source, ranks);
  return batch.has_value();
}

std::optional<Batch> Trainer::Impl::read_batch(std::int64_t batch_in_epoch) {
  return fit->source.next(progress().loader_epoch(), batch_in_epoch, [this] {
    state.batch.clear();
    train_step.forget_batch();
  });
}

// An epoch lasts until no rank has a batch. Those that have run out train none meanwhile.
std::optional<Batch> Trainer::Impl::next_of_own_loader() {
  const std::int64_t place = state.timestamp.batch_in_epoch;
  const std::optional<std::int64_t> own = fit->source.epoch_length();
  if (place == 0) fit->out_of_batches = false;
  if (own && place > 0 && place >= *own) fit->out_of_batches = true;  // also of a run that goes on there
  std::optional<Batch> batch;
  if (!fit->out_of_batches) batch = read_batch(place);
  fit->out_of_batches = !batch;
  if (!ranks.any(batch.has_value())) return std::nullopt;
  if (batch) return batch;
  if (state.batch.empty()) state.batch = read_batch(0).value_or(Batch());  // for its tensors' shapes and types
  fit->source.lose_place();
  fit->source.count_nothing();
  Batch nothing = state.batch;
  for (auto& [name, tensor] : nothing)
    if (tensor.dim() > 0) tensor = tensor.slice(0, 0, 0);
  return nothing;
}

bool Trainer::Impl::next_batch_aside(Feed& feed, Timestamp& timestamp) {
  if (timestamp.batch == 0) asides.stopwatch.lap();
  std::optional<Batch> batch = feed.next();
  if (fit) fit->source.lose_place_of(feed.loader());
  if (batch)
    state.batch = std::move(*batch);
  else if (timestamp.batch == 0)
    warn(join(feed.label(), " loader: gave no batch, so there is nothing to measure"));
  return batch.has_value();
}

// Signals of other ranks are heard here as well, so that all of them stop after the same batch.
void Trainer::Impl::count_batch_aside(const Feed& feed, Timestamp& timestamp) {
  Ranks::Aside counted{feed.samples(), feed.tokens(), signals->pending()};
  if (ranks.splits()) counted = ranks.hear_aside(counted);
  timestamp = timestamp.to_next_batch(counted.samples, counted.tokens, asides.stopwatch.lap());
  if (ranks.splits() && fit) note_signal(counted.signal);
}

void Trainer::Impl::count_batch() {
  state.previous_timestamp = state.timestamp;
  const BatchCounts& counts = train_step.counts();
  const Seconds spent = ranks.alone() ? fit->stopwatch.lap() : Seconds(counts.seconds);
  state.timestamp = state.timestamp.to_next_batch(counts.samples, counts.tokens, spent);
  fits.owed = {Owed::END, Event::BATCH_END, Event::BATCH_CHECKPOINT};
  rates.schedules().apply(state);
  tuning.tell_late();
  if (!progress().limit_reached()) fit->source.stage_next();
}

void Trainer::Impl::count_epoch() {
  state.previous_timestamp = state.timestamp;
  state.timestamp = state.timestamp.to_next_epoch();
  fits.owed = {Owed::END, Event::EPOCH_END, Event::EPOCH_CHECKPOINT};
  fit->source.lose_place();
  rates.schedules().apply(state);
  rates.schedules().observe(state, fit->source.feed().label());
}

void Trainer::Impl::count_iteration() {
  state.previous_timestamp = state.timestamp;
  state.timestamp = state.timestamp.to_next_iteration();
  fits.owed = {Owed::END, Event::ITERATION_END, Event::ITERATION_CHECKPOINT};
  fit->source.lose_place();
  rates.schedules().apply(state);
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
  if (fit->source.feed().tokens() > 0 || now.token > 0)  // a rank may have none of a small last batch
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

// At the end of a fit, in case that nobody saw the warning hours ago.
void Trainer::Impl::tell_nan() const {
  if (const auto since = train_step.nan_since(); since && ranks.first())
    warn(join("the training loss has been NaN since batch ", *since, state.device.is_cpu() ? "" : " or before",
              ", up to the end of this fit at batch ", state.timestamp.batch,
              ": nothing was learnt from there on. The callback NaNMonitor ends a run at the first ",
              "NaN, and says where it comes from"));
}

void Trainer::Impl::note_signal(int signal) {
  if (fit->ending.note(signal))
    state.stop.ask(fit->ending.signal() == SIGINT ? "interrupted (SIGINT)" : "told to end (SIGTERM)");
}

// Notes a signal, if one has come; true: this fit is interrupted. Several ranks note signals only where they hear of
// each other's.
bool Trainer::Impl::poll_signals() {
  if (!fit) return false;
  if (ranks.alone()) note_signal(signals->pending());
  return fit->ending.interrupted();
}

// What an evaluation or prediction draws: neither is what training draws next changed by it, nor does it change if a
// signal cuts it off and a resumed run does it again.
OwnRandom Trainer::Impl::random_aside(std::string_view label, std::int64_t call) const {
  constexpr std::uint64_t kAside = 0x6173696465;  // other streams begin with other numbers
  std::uint64_t seed = hash64(rank_seed(state), kAside, state.timestamp.batch, call);
  for (const char letter : label) seed = hash64(seed, static_cast<unsigned char>(letter));
  return {state.device, seed};
}

// Random numbers of a rank other than 0 are those of its place in training, so that nothing has to be saved of them.
void Trainer::Impl::draw_by_rank() {
  if (!ranks.first() || ranks.has_shards())
    process.random.seed(hash64(rank_seed(state), static_cast<std::uint64_t>(state.timestamp.batch)));
}

// Rank 0's, where ranks could have different answers: evaluations need all of them.
std::vector<EvalRun*> Trainer::Impl::due_on_all_ranks(std::vector<EvalRun*> due, bool may_differ) {
  std::vector<EvalRun>& runs = evaluations.runs();
  may_differ = may_differ || std::ranges::any_of(runs, differs_by_rank, &EvalRun::interval);
  if (ranks.alone() || !may_differ) return due;
  std::string marks;
  for (EvalRun& run : runs) marks += std::ranges::count(due, &run) > 0 ? '1' : '0';
  marks = ranks.same(marks);
  due.clear();
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (marks[i] == '1') due.push_back(&runs[i]);
  return due;
}
// Clocks of ranks differ, and all must agree on what is due after so many seconds. They tell each other when a batch is
// started, so a batch is counted with the time up to its start.
Seconds Trainer::Impl::time_of_ranks() { return ranks.alone() ? Seconds() : fit->stopwatch.lap(); }

// Batch-norm statistics differ by rank while training; all ranks are to evaluate one model. That they get them is no
// change, so that all ranks know the same metrics for current.
void Trainer::Impl::share_buffers() {
  GradientSync* const sync = train_step.ranks();
  if (!sync) return;
  const WeightsInUse::Unchanged unchanged(weights_in_use);
  sync->model().share_buffers();
}

// At the end of a fit: those of the model, and of what an algorithm hands out for it.
void Trainer::Impl::share_last_buffers() {
  if (ranks.alone()) return;
  share_buffers();
  const WeightsInUse::Scope weights(weights_in_use, WeightsUse::EXPORT);
  share_buffers();
}

void Trainer::Impl::share_model() {
  GradientSync* const sync = train_step.ranks();
  if (!sync) return;
  const WeightsInUse::Unchanged unchanged(weights_in_use);
  sync->model().share();
}

// At the head of a step, and at the end.
bool Trainer::Impl::stop_asked() {
  if (ranks.alone()) {
    poll_signals();
    return state.stop.asked();
  }
  const Ranks::Heard heard = ranks.hear(state.stop, signals->pending(), replicas.take_saved());
  if (heard.saved) replicas.compare();
  note_signal(heard.signal);
  return heard.stop || heard.signal != 0;
}

// Since the end has decided it: a stop or a signal has ended the fit, and another one goes on from there.
bool Trainer::Impl::pauses() const {
  return fit && fit->ending.was_asked() && !progress().limit_reached() &&
         Resumption::reason_to_save(state.stop).empty();
}

}  // namespace composer

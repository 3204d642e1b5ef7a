// What .tune chooses when a fit begins, whether the run keeps its promise, and what is chosen again.
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <ATen/Parallel.h>

#include "composer/core/error.h"
#include "composer/kernels/gemm.h"
#include "composer/optim/named_optimizer.h"
#include "composer/trainer/impl.h"
#include "composer/tuning/tuner.h"
#include "composer/util/tune_process.h"

namespace composer {
namespace {

constexpr int kMostAgain = 3;  // times that threads are chosen again in a run

std::string in_milliseconds(double seconds) { return join(std::round(seconds * 1e5) / 100, " ms"); }

}  // namespace

// What tune_process() wants of a trainer that has not asked itself gives way to everything that it could disturb.
bool Trainer::Impl::tunes() const {
  if (options.tune) return true;
  if (!process_races_products() || options.products != Products::TUNED || options.precision != Precision::FP32 ||
      !state.device.is_cpu() || !kernels::has_gemm() || options.deterministic_mode || !data.feed().loader())
    return false;
  const auto* ours = state.optimizer ? dynamic_cast<const optim::NamedOptimizer*>(&*state.optimizer) : nullptr;
  return !ours || !ours->steps_in_backward();
}

// A run goes on with the products that it began with, though nobody measures any more.
void Trainer::Impl::use_saved_products() {
  if (!tuning.chosen || !tuning.chosen->products || options.products != Products::TUNED) return;
  const auto saved = kernels::ProductTable::from_text(*tuning.chosen->products);
  if (!saved) warn("checkpoint: the products that .tune has chosen cannot be read, so libtorch's are used");
  products = saved.value_or(kernels::ProductTable());
  kernels::ProductScope::table_has_changed();
}

void Trainer::Impl::tune() {
  if (!tuning.lines.empty()) return;
  if (!tunes()) return use_saved_products();
  if (!data.feed().loader()) return warn("tune: has no effect without a train_dataloader");
  const Unbilled unbilled(&*fit);
  Feed feed = fit->source.feed();
  feed.seek(progress().loader_epoch(), state.timestamp.batch_in_epoch);
  fit->source.lose_place();
  std::optional<Batch> batch = feed.next();
  if (!batch) {  // the run goes on at the end of an epoch
    feed.seek(progress().loader_epoch() + 1, 0);
    batch = feed.next();
  }
  if (ranks.any(!batch)) return;  // that this is an error is said where it is trained on
  const bool has_size = state.device_train_microbatch_size > 0;
  const WeightsInUse::Unchanged unchanged(weights_in_use);
  const TrainStep::Apart apart(train_step);
  tuning.most_threads = at::get_num_threads();
  const auto choose = [&] {
    return tuner(feed, options.products == Products::TUNED ? &products : nullptr)
        .run(*batch, options.tune_cache, tuning.chosen);
  };
  TuningResult result;
  if (ranks.first()) result = choose();
  if (!ranks.alone()) {  // the others take what rank 0 has measured
    tuning.chosen = Tuned::parse(ranks.same(tuning.chosen ? tuning.chosen->text() : std::string()));
    if (!ranks.first() && tuning.chosen) result = choose();
  }
  if (tuning.chosen && options.tune) process.threads = tuning.chosen->threads;
  for (const TuningChoice& choice : result.choices) tuning.lines.push_back(to_string(choice));
  // That of the trial steps, if it is "auto": what was chosen may need more memory, or less.
  if (!has_size) state.device_train_microbatch_size = 0;
  if (!resumption.found)
    for (const auto& [setting, chosen, reason] : result.choices)
      logger.log_hyperparameters({{join("tune/", setting), join(chosen, ", ", reason)}});
  // Several ranks share the processors of a machine, on which rank 0 has measured alone; elsewhere steps are queued.
  if (!ranks.alone() || !state.device.is_cpu() || !tuning.chosen || !tuning.chosen->seconds) return;
  tuning.batch = std::move(*batch);
  tuning.key = result.key;
  tuning.disturbed = result.disturbed;
  tuning.pace.promise(*tuning.chosen->seconds, result.elements);
}

Tuner Trainer::Impl::tuner(const Feed& feed, kernels::ProductTable* table) {
  return Tuner(state, train_step, feed, {.ways = options.tune, .products = table, .stops = [this] {
                                           return poll_signals() || signals->pending() != 0 || state.stop.asked();
                                         }});
}

void Trainer::Impl::start_pace() {
  if (tuning.pace.has_promise()) tuning.pace.start(elements_of(state.batch));
}

void Trainer::Impl::tell_late() {
  if (!tuning.pace.take_news()) return;
  warn(join("tune: forward, loss and backward of a batch take ", in_milliseconds(tuning.pace.late_seconds()), "; ",
            in_milliseconds(tuning.pace.promised()),
            " were measured when the fastest way was chosen. Other programs use ",
            "the processors, or did so then. The choice is not kept for later runs",
            chooses_threads_again() ? ", and the number of threads is chosen again when the epoch ends" : ""));
}

bool Trainer::Impl::chooses_threads_again() const {
  return options.tune && tuning.most_threads > 1 && tuning.times_again < kMostAgain && !options.deterministic_mode;
}

// At the end of an epoch. What was chosen on a busy machine, or is slower now, may not be the fastest way any more. The
// number of threads is the one choice that a run can change; for a precision, later runs measure again.
void Trainer::Impl::tune_again() {
  const bool late = tuning.pace.is_late();
  if (!tuning.chosen || (!late && !tuning.disturbed)) return;
  if (late && !tuning.key.empty()) TuneCache(options.tune_cache).forget(std::exchange(tuning.key, ""));
  if (!chooses_threads_again() || progress().limit_reached()) return;
  ++tuning.times_again;
  const Unbilled unbilled(&*fit);
  const WeightsInUse::Unchanged unchanged(weights_in_use);
  const TrainStep::Apart apart(train_step);
  const Feed feed = fit->source.feed();
  const int other = tuning.chosen->threads == 1 ? tuning.most_threads : 1;
  const TuningResult result = tuner(feed, nullptr).run_threads(tuning.batch, other, *tuning.chosen);
  if (result.choices.empty()) return;  // it was stopped
  process.threads = tuning.chosen->threads;
  tuning.disturbed = result.disturbed;
  tuning.pace.promise(*tuning.chosen->seconds, result.elements);
  const TuningChoice& threads = result.choices.front();
  std::erase_if(tuning.lines, [](const std::string& line) { return line.starts_with("threads: "); });
  tuning.lines.push_back(join(to_string(threads), ", measured again after epoch ", state.timestamp.epoch));
  // Under a name of its own: some services refuse another value of what they have.
  logger.log_hyperparameters(
      {{join("tune/threads_after_epoch_", state.timestamp.epoch), join(threads.chosen, ", ", threads.reason)}});
}

}  // namespace composer

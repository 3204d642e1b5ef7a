#include "composer/trainer/tuning.h"

#include <cmath>
#include <utility>

#include <ATen/Parallel.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/kernels/gemm.h"
#include "composer/optim/named_optimizer.h"
#include "composer/step/train_step.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/process_state.h"
#include "composer/trainer/progress.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/trainer.h"
#include "composer/trainer/training_data.h"
#include "composer/tuning/tuner.h"
#include "composer/util/tune_process.h"

namespace composer {
namespace {

constexpr int kMostAgain = 3;  // limits how often threads are chosen again in a run

std::string in_milliseconds(double seconds) { return join(std::round(seconds * 1e5) / 100, " ms"); }

}  // namespace

bool Tuning::decides_products() const { return needs_.options.products != Products::TUNED || chosen_ || tunes(); }

// tune_process() can ask for the measurement of products. Without .tune, this is done only where it cannot disturb
// training: in fp32 on a CPU, without deterministic_mode, and with an optimizer that does not step in backward.
bool Tuning::tunes() const {
  const TrainerOptions& options = needs_.options;
  if (options.tune) return true;
  if (!process_races_products() || options.products != Products::TUNED || options.precision != Precision::FP32 ||
      !needs_.state.device.is_cpu() || !kernels::has_gemm() || options.deterministic_mode ||
      !needs_.data.feed().loader())
    return false;
  const auto* ours =
      needs_.state.optimizer ? dynamic_cast<const optim::NamedOptimizer*>(&*needs_.state.optimizer) : nullptr;
  return !ours || !ours->steps_in_backward();
}

void Tuning::use_saved_products() {
  if (!chosen_ || !chosen_->products || needs_.options.products != Products::TUNED) return;
  const auto saved = kernels::ProductTable::from_text(*chosen_->products);
  if (!saved) warn("checkpoint: the products that .tune has chosen cannot be read, so libtorch's are used");
  needs_.process.products = saved.value_or(kernels::ProductTable());
  kernels::ProductScope::table_has_changed();
}

void Tuning::begin_fit(Fit& fit, const Progress& progress, bool goes_on) {
  if (!lines_.empty()) return;
  if (!tunes()) return use_saved_products();
  if (!needs_.data.feed().loader()) return warn("tune: has no effect without a train_dataloader");
  const TrainerOptions& options = needs_.options;
  const Ranks& ranks = needs_.ranks;
  const Untimed untimed(&fit);
  Feed feed = fit.source.feed();
  fit.source.lose_place();
  std::optional<Batch> batch = batch_to_try(feed, progress);
  if (ranks.any(!batch)) return;  // the error is reported where the batch is trained
  const bool has_size = needs_.state.device_train_microbatch_size > 0;
  const WeightsInUse::Unchanged unchanged(needs_.weights_in_use);
  const JoinedRanks::ThisRankOnly this_rank_only(needs_.train_step.ranks());
  watched_.most_threads = at::get_num_threads();
  const auto choose = [&] {
    return tuner(feed, options.products == Products::TUNED ? &needs_.process.products : nullptr)
        .run(*batch, options.tune_cache, chosen_);
  };
  TuningResult result;
  if (ranks.first()) result = choose();
  if (!ranks.alone()) {  // other ranks use the choices of rank 0
    chosen_ = Tuned::parse(ranks.same(chosen_ ? chosen_->text() : std::string()));
    if (!ranks.first() && chosen_) result = choose();
  }
  if (chosen_ && options.tune) needs_.process.settings.threads = chosen_->threads;
  for (const TuningChoice& choice : result.choices) lines_.push_back(to_string(choice));
  // An "auto" size found in the trial steps is not kept, because the chosen settings may need more or less memory.
  if (!has_size) needs_.state.device_train_microbatch_size = 0;
  if (!goes_on)
    for (const auto& [setting, chosen, reason] : result.choices)
      needs_.logger.log_hyperparameters({{join("tune/", setting), join(chosen, ", ", reason)}});
  // Ranks share the processors of a machine, on which rank 0 has measured alone; on other devices steps are queued.
  if (!ranks.alone() || !needs_.state.device.is_cpu() || !chosen_ || !chosen_->seconds) return;
  watched_.batch = std::move(*batch);
  watched_.key = result.key;
  watched_.disturbed = result.disturbed;
  watched_.pace.promise(*chosen_->seconds, result.elements);
}

// The next batch; if the run is resumed at the end of an epoch, the first batch of the next one.
std::optional<Batch> Tuning::batch_to_try(Feed& feed, const Progress& progress) const {
  feed.seek(progress.loader_epoch(), progress.now.batch_in_epoch);
  if (std::optional<Batch> batch = feed.next()) return batch;
  feed.seek(progress.loader_epoch() + 1, 0);
  return feed.next();
}

Tuner Tuning::tuner(const Feed& feed, kernels::ProductTable* table) const {
  return {
      needs_.state, needs_.train_step, feed, {.ways = needs_.options.tune, .products = table, .stops = needs_.stops}};
}

void Tuning::start_microbatch() {
  if (watched_.pace.has_promise()) watched_.pace.start(elements_of(needs_.state.batch));
}

void Tuning::warn_if_late() {
  if (!watched_.pace.take_news()) return;
  warn(join("tune: forward, loss and backward of a batch take ", in_milliseconds(watched_.pace.late_seconds()), "; ",
            in_milliseconds(watched_.pace.promised()),
            " were measured when the fastest way was chosen. Other programs use ",
            "the processors, or did so then. The choice is not kept for later runs",
            chooses_threads_again() ? ", and the number of threads is chosen again when the epoch ends" : ""));
}

bool Tuning::chooses_threads_again() const {
  return needs_.options.tune && watched_.most_threads > 1 && watched_.times_again < kMostAgain &&
         !needs_.options.deterministic_mode;
}

// What was chosen on a busy machine, or has become slower, may no longer be the fastest. The number of threads is the
// only choice that can change during a run; for a precision, later runs measure again.
void Tuning::end_epoch(Fit& fit, const Progress& progress) {
  const bool late = watched_.pace.is_late();
  if (!chosen_ || (!late && !watched_.disturbed)) return;
  if (late && !watched_.key.empty()) TuneCache(needs_.options.tune_cache).forget(std::exchange(watched_.key, ""));
  if (!chooses_threads_again() || progress.limit_reached()) return;
  ++watched_.times_again;
  const Untimed untimed(&fit);
  const WeightsInUse::Unchanged unchanged(needs_.weights_in_use);
  const JoinedRanks::ThisRankOnly this_rank_only(needs_.train_step.ranks());
  const Feed feed = fit.source.feed();
  const int other = chosen_->threads == 1 ? watched_.most_threads : 1;
  const TuningResult result = tuner(feed, nullptr).run_threads(watched_.batch, other, *chosen_);
  if (result.choices.empty()) return;  // the measurement was stopped
  needs_.process.settings.threads = chosen_->threads;
  watched_.disturbed = result.disturbed;
  watched_.pace.promise(*chosen_->seconds, result.elements);
  const TuningChoice& threads = result.choices.front();
  const std::int64_t epoch = progress.now.epoch;
  std::erase_if(lines_, [](const std::string& line) { return line.starts_with("threads: "); });
  lines_.push_back(join(to_string(threads), ", measured again after epoch ", epoch));
  // Logged under a separate name, because some services reject a second value of a parameter.
  needs_.logger.log_hyperparameters(
      {{join("tune/threads_after_epoch_", epoch), join(threads.chosen, ", ", threads.reason)}});
}

}  // namespace composer

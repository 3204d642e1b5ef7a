// Runs a fit on a copy of the state, whose learning rate rises until the loss does. Only algorithms see the fit.
#include "composer/trainer/lr_finder.h"

#include <cmath>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/step/trial_undo.h"
#include "composer/trainer/divergence.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/impl.h"

namespace composer {
namespace {

std::vector<Option<FindLrOptions>> find_lr_options() {
  using O = FindLrOptions;
  return all_options(option("start_lr", &O::start_lr), option("end_lr", &O::end_lr),
                     option("num_batches", &O::num_batches).at_least(2),
                     option("smoothing", &O::smoothing).from_0_below_1(), option("stop_at", &O::stop_at).above(1),
                     part("train_dataloader", &O::train_dataloader, "a loader"));
}

void check_find_lr(const FindLrOptions& options) {
  check(options, find_lr_options(), "find_lr: ", "");
  if (!(options.start_lr > 0 && options.end_lr > options.start_lr && std::isfinite(options.end_lr)))
    throw ConfigError("find_lr: must be 0 < start_lr < end_lr, got ", options.start_lr, " and ", options.end_lr);
}

std::vector<double> rates_of(const FindLrOptions& options) {
  std::vector<double> rates;
  rates.reserve(static_cast<std::size_t>(options.num_batches));
  const auto last = static_cast<double>(options.num_batches - 1);
  for (std::int64_t i = 0; i < options.num_batches; ++i)
    rates.push_back(options.start_lr * std::pow(options.end_lr / options.start_lr, static_cast<double>(i) / last));
  return rates;
}

// Collects the losses of a trial. On a CPU each is read at once; otherwise they are read in groups, so that the host
// seldom waits for the device.
class TrialLosses {
 public:
  TrialLosses(const FindLrOptions& options, at::Device device)
      : divergence_(options.smoothing, options.stop_at), group_(device.is_cpu() ? 1 : 10) {}

  void add(const at::Tensor& loss) {
    unread_.push_back(loss);
    if (unread_.size() >= group_) read();
  }
  void read() {
    if (unread_.empty()) return;
    const at::Tensor read = at::stack(unread_).to(at::kCPU, at::kDouble);
    for (std::int64_t i = 0; i < read.numel(); ++i) {
      values_.push_back(read.const_data_ptr<double>()[i]);
      diverged_ = divergence_.found(values_.back()) || diverged_;
    }
    unread_.clear();
  }
  bool diverged() const { return diverged_; }
  const std::vector<double>& values() const { return values_; }

 private:
  Divergence divergence_;
  std::size_t group_;
  std::vector<at::Tensor> unread_;
  std::vector<double> values_;
  bool diverged_ = false;
};

TrainerOptions unwatched(TrainerOptions options) {
  options.callbacks = {};
  options.loggers = {};
  options.eval_dataloader = {};
  options.schedulers = {};
  options.tune = false;
  options.products = Products::LIBRARY;  // no products are timed; the trial uses the trainer's table
  options.cuda_graph = false;
  options.save_folder = {};
  return options;
}

// Requests to stop the run do not stop the trial, and there is no run to save.
State of_trial(State state) {
  state.stop = Stop();
  state.run = {};
  return state;
}

}  // namespace

Trainer::Impl::Impl(const Impl& other, ForTrial)
    : options(unwatched(other.options)),
      ranks(other.ranks),
      state(of_trial(other.state)),
      process(other.process),
      rates(other.rates.of_trial()),
      logger(state, {}),
      data(other.data),
      settings(other.settings.of_trial()),
      train_step(state, logger, options.accumulate_train_batch_on_tokens),
      checkpoints(options, ranks, state, replicas, {}, {}),
      engine(state, logger, other.engine, Engine::ForTrial{}) {
  if (!ranks.alone() || ranks.has_shards()) train_step.ranks().join(state, ranks.shared_world(), ranks.options());
  train_step.set_microbatch_size(other.train_step.microbatch_size(), options.microbatch_memory);
}

LrCurve Trainer::find_lr(const FindLrOptions& options) {
  impl().guard.require_open("find_lr()");
  impl().calls.require_idle("find_lr()");
  if (impl_->fit) throw ConfigError("find_lr: a fit is going on; call end() first");
  check_find_lr(options);
  check_has_optimizer(impl_->state, static_cast<bool>(impl_->options.optimizer), "find_lr");
  if (!impl_->data.feed().loader() && !options.train_dataloader)
    throw ConfigError("find_lr: a train_dataloader is required; give it to the Trainer's options or to find_lr()");
  const double base = impl_->rates.base().front();
  if (!(base > 0)) throw ConfigError("find_lr: the learning rate of the first parameter group must be > 0, got ", base);

  const Flag in_call = impl_->calls.begin(), trying = impl_->calls.begin_trial();
  const std::vector<double> rates = rates_of(options);
  const std::int64_t first = impl_->state.timestamp.batch;
  const auto rise = [&rates, first, base](const optim::ScheduleContext& now) {
    const std::int64_t last = static_cast<std::int64_t>(rates.size()) - 1;
    return rates[static_cast<std::size_t>(std::min(now.timestamp.batch - first, last))] / base;
  };

  TrialLosses losses(options, impl_->state.device);
  {
    const RandomScope draws(impl_->process.random);
    const WeightsInUse::Unchanged unchanged(impl_->weights_in_use);
    Impl trial(*impl_, Impl::ForTrial{});
    const TrialUndo undo(impl_->state, trial.engine.algorithms());
    trial.start_fit({.train_dataloader = options.train_dataloader,
                     .duration = Time(options.num_batches, TimeUnit::BATCH),
                     .schedulers = {rise}},
                    /*needs_loader=*/true);
    // Algorithms that depend on the finished share of the run must see that of the run itself.
    trial.fit->limited = false;
    if (impl_->state.max_duration) trial.state.max_duration = impl_->state.max_duration;
    trial.guard.train([&] {
      trial.begin();
      std::int64_t counted = first;
      while (!losses.diverged() && counted < first + options.num_batches && trial.step())
        if (const std::int64_t now = trial.state.timestamp.batch;
            std::exchange(counted, now) != now)  // false: it was the end of an epoch
          losses.add(trial.state.batch_loss.at("total"));
      trial.end();
    });
    losses.read();
    trial.finish_fit();
    impl_->fits.interrupted_by = trial.fits.interrupted_by;
  }
  if (!losses.values().empty() && !std::isfinite(losses.values().front()))
    throw ConfigError("find_lr: the loss of the first batch is ", losses.values().front(),
                      ", before any step has been made");
  return LrCurve::of(rates, losses.values(), options);
}

}  // namespace composer

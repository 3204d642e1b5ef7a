// What the options mean, and whether it can be done: everything is checked before anything is changed.
#include <limits>

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/optim/named_optimizer.h"
#include "composer/step/precision.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/tuner.h"

namespace composer {
namespace {

void check_duration(Time duration, const char* option) {
  if (duration.unit() == TimeUnit::SECOND || duration.unit() == TimeUnit::DURATION)
    throw ConfigError(option, ": must be in ep, ba, sp, tok or iter, got ", duration);
}

void check_microbatch_size(MicrobatchSize size) {
  if (size.samples() < 0)
    throw ConfigError("device_train_microbatch_size: must be >= 1, 0 for whole batches, or \"auto\", got ",
                      size.samples());
}

// An optimizer that steps in backward changes the weights with the gradients of a microbatch, or of a trial.
void check_step_in_backward(const optim::Optimizer& optimizer, const Engine& engine, bool whole_batches, bool scales,
                            bool tune) {
  const auto* ours = dynamic_cast<const optim::NamedOptimizer*>(&optimizer);
  if (!ours || !ours->steps_in_backward()) return;
  const char* option = nullptr;
  if (!whole_batches) option = "device_train_microbatch_size";
  if (scales) option = "a grad_scaler, which amp_fp16 has";
  if (tune) option = "tune";
  if (option) throw ConfigError("optimizer: step_in_backward does not go with ", option);
  for (const auto& algorithm : engine.algorithms())
    if (algorithm.events.contains(Event::AFTER_TRAIN_BATCH))
      throw ConfigError("optimizer: step_in_backward leaves no gradients for ", algorithm.name,
                        ", which runs at AFTER_TRAIN_BATCH");
}

// What is left of the run when schedules are scaled by `ratio`.
OptionalTime scaled(OptionalTime max_duration, double ratio, bool has_schedulers) {
  if (ratio == 1) return max_duration;
  if (!(ratio > 0)) throw ConfigError("scale_schedule_ratio: must be > 0, got ", ratio);
  if (!has_schedulers) throw ConfigError("scale_schedule_ratio: ", ratio, " has no effect without schedulers");
  if (!max_duration) return max_duration;
  const Time shorter = *max_duration * ratio;
  if (shorter.count() == 0)
    throw ConfigError("scale_schedule_ratio: ", ratio, " makes a max_duration of ", *max_duration, " nothing");
  return shorter;
}

// Neither the default nor off.
bool is_chosen(const Interval& eval_interval) {
  if (eval_interval.function()) return true;
  return eval_interval.time().as_double() != 0 && to_string(eval_interval.time()) != "1ep";
}

}  // namespace

void check_options(const TrainerOptions& options, at::Device device) {
  if (options.max_duration) check_duration(*options.max_duration, "max_duration");
  check_microbatch_size(options.device_train_microbatch_size);
  if (options.microbatch_memory < 0)
    throw ConfigError("microbatch_memory: must be > 0 bytes, or 0 for what there is, got ", options.microbatch_memory);
  if (options.microbatch_memory > 0 && !options.device_train_microbatch_size.is_auto())
    warn("microbatch_memory has no effect unless device_train_microbatch_size is \"auto\"");
  check_precision(options.precision, device);
  if (!(options.grace_period.count() > 0))
    throw ConfigError("grace_period: must be > 0 seconds, got ", options.grace_period.count());
  if (options.grad_scaler) const optim::GradScaler checked(*options.grad_scaler, at::kCPU);
  check_subset(options.train_dataloader_label, options.train_subset_num_batches);
  scaled(options.max_duration, options.scale_schedule_ratio, !options.schedulers.empty());
  options.eval_dataloader.checked(options.eval_subset_num_batches);
  if (options.iteration_length) {
    const Time length = *options.iteration_length;
    if ((length.unit() != TimeUnit::EPOCH && length.unit() != TimeUnit::TOKEN) || length.count() < 1)
      throw ConfigError("iteration_length: must be at least 1, in ep or tok, got ", length);
  }
  if (options.eval_dataloader.empty() && options.eval_subset_num_batches != -1)
    warn("eval_subset_num_batches has no effect without an eval_dataloader");
  if (options.eval_dataloader.empty() && is_chosen(options.eval_interval))
    warn("eval_interval has no effect without an eval_dataloader");
  if (device.is_cuda() && (!at::hasCUDA() || device.index() >= at::detail::getCUDAHooks().deviceCount()))
    throw ConfigError("device: ", device.str(), " was asked for, and libtorch does not find that CUDA device");
}

// After INIT, so that an algorithm could change the model before its parameters were counted.
void Trainer::Impl::set_up() {
  train_step.set_metrics(MetricSet(state.model->get_metrics(/*is_train=*/true), options.train_dataloader_label));
  evaluators = make_runs(options.eval_dataloader, options.eval_interval, options.eval_subset_num_batches);
  if (options.train_dataloader)
    activate(Feed(options.train_dataloader, options.train_dataloader_label, options.train_subset_num_batches));
  state.max_duration = scaled(options.max_duration, options.scale_schedule_ratio, !options.schedulers.empty());
  schedules =
      SchedulePlan(options.schedulers, options.scale_schedule_ratio, options.step_schedulers_every_batch, base_lr);
  schedules.apply(state);
}

void Trainer::Impl::activate(const Feed& feed) {
  train = feed;
  if (options.copy_ahead && !state.device.is_cpu()) train.copy_ahead(copies_on_side_stream(state.device));
  positioned = false;
  state.has_dataloader = true;
  state.dataloader_label = feed.label();
  state.dataloader_len = feed.num_batches();
}

std::vector<EvalRun> Trainer::Impl::make_runs(const Evaluators& given, const Interval& interval,
                                              std::int64_t subset) const {
  std::vector<EvalRun> runs;
  for (Evaluator& evaluator : given.checked(subset)) {
    const Metrics metrics = evaluator.metrics ? *evaluator.metrics : state.model->get_metrics(/*is_train=*/false);
    runs.push_back({.evaluator = evaluator,
                    .feed = Feed(evaluator.dataloader, evaluator.label, *evaluator.subset_num_batches),
                    .interval = evaluator.eval_interval.value_or(interval),
                    .metrics = MetricSet(metrics, evaluator.label, evaluator.metric_names)});
  }
  return runs;
}

void Trainer::Impl::start_fit(const FitOptions& fit, bool needs_loader) {
  if (engine.closed()) throw Error("Trainer: fit() after close(); make a new Trainer");
  if (fitting) throw ConfigError("Trainer: begin() was called before; call end() first");
  if (!state.optimizer)
    throw ConfigError(
        "optimizer: is required to fit, e.g. .optimizer = optim::adamw({.lr = 1e-3}), and a model that has ",
        "parameters");
  Feed feed = feed_of(fit);
  if (!feed && needs_loader)
    throw ConfigError("train_dataloader: is required to fit; give it to the Trainer's options or to fit()");
  const Timestamp from = fit.reset_time ? Timestamp{} : state.timestamp;
  const Time until = end_of(fit, from, feed, needs_loader);
  check_microbatch_size(fit.device_train_microbatch_size.value_or(0));
  const Precision precision = fit.precision.value_or(state.precision);
  check_precision(precision, state.device);
  std::vector<EvalRun> runs = make_runs(fit.eval_dataloader, fit.eval_interval, fit.eval_subset_num_batches);

  for (const EvalRun& run : runs.empty() ? evaluators : runs) {
    if (!run.interval.function() && run.interval.time().unit() == TimeUnit::DURATION && !feed.num_batches())
      throw ConfigError("eval_interval: ", run.interval.time(),
                        " needs a training loader whose length is known; give it ",
                        "in ba, sp or tok, or set train_subset_num_batches");
  }

  SchedulePlan plan = fit.schedulers.empty() ? schedules
                                             : SchedulePlan(fit.schedulers, fit.scale_schedule_ratio,
                                                            fit.step_schedulers_every_batch.value_or(true), base_lr);
  std::vector<std::string> labels{feed.label()};
  for (const EvalRun& run : runs.empty() ? evaluators : runs) labels.push_back(run.feed.label());
  plan.check_labels(labels);

  const bool scales = options.grad_scaler || precision == Precision::AMP_FP16;
  const bool whole_batches = fit.device_train_microbatch_size ? !fit.device_train_microbatch_size->is_auto() &&
                                                                    fit.device_train_microbatch_size->samples() == 0
                                                              : train_step.trains_whole_batches();
  if (saver) saver->begin_fit(state);
  check_step_in_backward(*state.optimizer, engine, whole_batches, scales, options.tune);
  train_step.scale_losses(precision, options.grad_scaler);

  // Nothing below can fail, but for a schedule that cannot be computed.
  state.timestamp = from;
  state.max_duration = until;
  state.stop.clear();
  activate(feed);
  if (fit.device_train_microbatch_size)
    train_step.set_microbatch_size(*fit.device_train_microbatch_size, options.microbatch_memory);
  state.precision = precision;
  if (!runs.empty()) evaluators = std::move(runs);
  if (fit.reset_time) {
    state.previous_timestamp.reset();
    for (EvalRun& run : evaluators) run.last_due_batch = -1;
  }
  schedules = std::move(plan);
  schedules.apply(state);
  interrupted_by = 0;
  given_batch.reset();
  signals.emplace(options.handle_signals);
  fitting = true;
  stopwatch.lap();
  if (resumed) return;  // the log has them
  for (const auto& algorithm : engine.algorithms())
    logger.log_hyperparameters({{join("enabled_algorithms/", algorithm.name), true}});
}

void Trainer::Impl::tune() {
  if (!options.tune || !tuning.empty()) return;
  if (!train.loader()) return warn("tune: has no effect without a train_dataloader");
  train.seek(state.timestamp.epoch, state.timestamp.batch_in_epoch);
  positioned = false;
  std::optional<Batch> batch = train.next();
  if (!batch) return;  // that this is an error is said where it is trained on
  const bool has_size = state.device_train_microbatch_size > 0;
  tuning = Tuner(state, train_step, train).run(std::move(*batch), options.tune_cache, tuned);
  // That of the trial steps, if it is "auto": what was chosen may need more memory, or less.
  if (!has_size) state.device_train_microbatch_size = 0;
  if (resumed) return;
  for (const std::string& line : tuning) {
    const auto colon = line.find(": ");
    logger.log_hyperparameters({{join("tune/", line.substr(0, colon)), line.substr(colon + 2)}});
  }
}

void Trainer::Impl::finish_fit() {
  fitting = false;
  train_step.end_fit();
  train.drop_staged();
  positioned = false;
  signals.reset();
  if (saver) saver->end_fit();
}

Feed Trainer::Impl::feed_of(const FitOptions& fit) const {
  if (fit.train_dataloader)
    return Feed(fit.train_dataloader, fit.train_dataloader_label, fit.train_subset_num_batches.value_or(-1));
  return train && fit.train_subset_num_batches ? train.with_subset(*fit.train_subset_num_batches) : train;
}

Time Trainer::Impl::end_of(const FitOptions& fit, const Timestamp& from, const Feed& feed, bool needs_limit) const {
  OptionalTime until = state.max_duration;
  if (fit.duration) {
    check_duration(*fit.duration, "duration");
    until = *fit.duration + from.get(fit.duration->unit());
  }
  until = scaled(until, fit.scale_schedule_ratio, !fit.schedulers.empty());
  if (fit.step_schedulers_every_batch && fit.schedulers.empty())
    throw ConfigError("step_schedulers_every_batch: has no effect without schedulers in the same fit()");
  if (!until && needs_limit)
    throw ConfigError("max_duration: is required to fit; give it to the Trainer's options, or a duration to fit()");
  if (!until) return {std::numeric_limits<std::int64_t>::max(), TimeUnit::BATCH};  // as long as the caller goes on
  if (until->unit() == TimeUnit::EPOCH && feed && !feed.num_batches())
    throw ConfigError("max_duration: is ", *until, ", and the ", feed.label(),
                      " loader does not know its length; give ",
                      "it in ba, sp or tok, or set train_subset_num_batches");
  if (from.reached(*until) && !resumed)  // which had been saved at its end
    throw ConfigError("max_duration: training has already reached ", *until,
                      ", so there is nothing to do; give fit() a ", "duration, or reset_time");
  return *until;
}

void Trainer::Impl::log_hyperparameters() {
  logger.log_hyperparameters({{"composer_version", std::string(COMPOSER_VERSION)},
                              {"num_nodes", std::int64_t{1}},
                              {state.device.is_cuda() ? "num_gpus_per_node" : "num_cpus_per_node", std::int64_t{1}},
                              {"rank_zero_seed", static_cast<std::int64_t>(state.seed)}});
}

}  // namespace composer

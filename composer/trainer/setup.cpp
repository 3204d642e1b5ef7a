// What the options mean, and whether it can be done: everything is checked before anything is changed.
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/core/plugin_state.h"
#include "composer/device/device_support.h"
#include "composer/dist/world.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/optimizer_state.h"
#include "composer/step/loss_scaling.h"
#include "composer/trainer/call_options.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/fit_plan.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/resume_with.h"
#include "composer/trainer/trainer_options.h"
#include "composer/util/exact_text.h"

namespace composer {
namespace {

// An optimizer that steps in backward changes the weights with the gradients of a microbatch, or of a trial.
void check_step_in_backward(const optim::Optimizer& optimizer, const Engine& engine, bool whole_batches, bool scales,
                            bool tune, bool several_ranks) {
  const auto* ours = dynamic_cast<const optim::NamedOptimizer*>(&optimizer);
  if (!ours || !ours->steps_in_backward()) return;
  const char* option = nullptr;
  if (!whole_batches) option = "device_train_microbatch_size";
  if (scales) option = "a grad_scaler, which amp_fp16 has";
  if (tune) option = "tune";
  if (several_ranks) option = "several processes";
  if (option) throw ConfigError("optimizer: step_in_backward does not go with ", option);
  for (const auto& algorithm : engine.algorithms())
    if (algorithm.events.contains(Event::AFTER_TRAIN_BATCH))
      throw ConfigError("optimizer: step_in_backward leaves no gradients for ", algorithm.name,
                        ", which runs at AFTER_TRAIN_BATCH");
}

// A rank steps an optimizer of which most parameters have no gradient.
void check_can_be_sharded(const optim::Optimizer& optimizer, std::int64_t zero_stage) {
  if (zero_stage == 0 || can_be_sharded(optimizer)) return;
  throw ConfigError("distributed.zero_stage: ", c10::demangle(typeid(optimizer).name()),
                    " may keep state of parameters that have no gradient, so its state cannot be divided among ranks; ",
                    "use an optimizer of composer/optim, or torch::optim's SGD, Adam, AdamW or RMSprop");
}

// What is left of the run when schedules are scaled by `ratio`.
OptionalTime scaled(OptionalTime max_duration, double ratio, bool has_schedulers, const char* where = "") {
  if (ratio == 1) return max_duration;
  if (!has_schedulers) throw ConfigError("scale_schedule_ratio: ", ratio, " has no effect without schedulers", where);
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

// Of options that say how to load, where there is nothing to load.
void warn_of_idle_loading(const TrainerOptions& options) {
  const TrainerOptions usual;
  std::vector<std::string> idle;
  for (const Option<TrainerOptions>& option : trainer_options())
    if (option.name.starts_with("load_") && text_of(option.value(options)) != text_of(option.value(usual)))
      idle.push_back(option.name);
  if (!idle.empty()) warn(join(listed(idle), idle.size() == 1 ? " has" : " have", " no effect without a load_path"));
}

}  // namespace

void check_options(const TrainerOptions& options, at::Device device) {
  check_resume_with(options);
  if (options.max_duration) check_limit(*options.max_duration, "max_duration", options.iteration_length);
  check(options, trainer_options());
  check_precision(options.precision, device);
  if (options.grad_scaler) const optim::GradScaler checked(*options.grad_scaler, at::kCPU);
  check_subset(options.train_dataloader_label, options.train_subset_num_batches);
  scaled(options.max_duration, options.scale_schedule_ratio, !options.schedulers.empty());
  const SchedulePlan checked_schedulers(options.schedulers, 1, true);
  std::vector<std::string> labels;
  bool is_auto = options.device_train_microbatch_size.is_auto();
  for (const Evaluator& evaluator : options.eval_dataloader.checked(options.eval_subset_num_batches)) {
    labels.push_back(evaluator.label);
    is_auto |= evaluator.device_eval_microbatch_size && evaluator.device_eval_microbatch_size->is_auto();
  }
  if (options.microbatch_memory > 0 && !is_auto)
    warn("microbatch_memory has no effect unless device_train_microbatch_size or that of an evaluator is \"auto\"");
  check_labels(options.train_dataloader_label, labels);
  if (options.save_best && options.save_folder.empty()) warn("save_best has no effect without a save_folder");
  if (options.load_path.empty()) warn_of_idle_loading(options);
  if (options.eval_dataloader.empty() && options.eval_subset_num_batches != -1)
    warn("eval_subset_num_batches has no effect without an eval_dataloader");
  if (options.eval_dataloader.empty() && is_chosen(options.eval_interval))
    warn("eval_interval has no effect without an eval_dataloader");
  device_support(device.type()).check(device);
}

std::vector<std::string> labels_of(const std::vector<EvalRun>& runs) {
  std::vector<std::string> labels;
  labels.reserve(runs.size());
  for (const EvalRun& run : runs) labels.push_back(run.feed.label());
  return labels;
}

// After INIT, so that an algorithm could change the model before its parameters were counted.
void Trainer::Impl::set_up() {
  settings.begin(as_module(*state.model));
  train_step.set_metrics(MetricSet(metrics_of(*state.model, /*is_train=*/true), options.train_dataloader_label));
  evaluations.replace(make_runs(options.eval_dataloader, options.eval_interval, options.eval_subset_num_batches));
  data.begin(options, ranks, state);
  state.max_duration = scaled(options.max_duration, options.scale_schedule_ratio, !options.schedulers.empty());
  rates.begin(SchedulePlan(options.schedulers, options.scale_schedule_ratio, options.step_schedulers_every_batch),
              state);
}

std::vector<EvalRun> Trainer::Impl::make_runs(const Evaluators& given, const Interval& interval,
                                              std::int64_t subset) const {
  std::vector<EvalRun> runs;
  for (Evaluator& evaluator : given.checked(subset)) {
    const Metrics metrics = evaluator.metrics ? *evaluator.metrics : metrics_of(*state.model, /*is_train=*/false);
    const MicrobatchSize at_once = evaluator.device_eval_microbatch_size.value_or(0);
    runs.push_back({.evaluator = evaluator,
                    .feed = ranks.feed(evaluator.dataloader, evaluator.label, *evaluator.subset_num_batches),
                    .interval = evaluator.eval_interval.value_or(interval),
                    .metrics = MetricSet(metrics, evaluator.label, evaluator.metric_names),
                    .microbatch = EvalMicrobatch(evaluator.label, at_once, options.microbatch_memory)});
    if (at_once.is_auto()) runs.back().metrics.check_have_sums();
  }
  return runs;
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): it loses sight of the function that the interval owns

void Trainer::Impl::start_fit(const FitOptions& given, bool needs_loader) {
  try {
    const Fits::Left left = fits.left(resumption.found.has_value(), state.stop.asked());
    check_ranks(left);
    FitPlan plan = ranks.together([&] { return plan_fit(given, left, needs_loader); });
    if (left == Fits::Left::NOTHING) return skip_fit(std::move(plan));
    check_ranks(plan);
    checkpoints.check_parts();
    commit(std::move(plan));
  } catch (...) {
    fits.failed = true;
    if (!fit) checkpoints.end_fit();
    throw;
  }
}

// What holds for the fits after this one as well.
Trainer::Impl::FitPlan Trainer::Impl::plan_lasting(const FitOptions& given) const {
  composer::check(given, fit_options());
  FitPlan plan{.feed = data.of_fit(given, options, ranks),
               .precision = given.precision.value_or(state.precision),
               .microbatch_size = given.device_train_microbatch_size,
               .evaluators = make_runs(given.eval_dataloader, given.eval_interval, given.eval_subset_num_batches),
               .holds = {.loader = {}, .process = ProcessClaim(process)}};
  check_precision(plan.precision, state.device);
  std::optional<SchedulePlan> schedules;
  if (!given.schedulers.empty())
    schedules.emplace(given.schedulers, given.scale_schedule_ratio, given.step_schedulers_every_batch.value_or(true));
  plan.rates = rates.of_fit(state, std::move(schedules));
  if (plan.feed && plan.feed.label() != data.feed().label())
    plan.metrics = MetricSet(metrics_of(*state.model, /*is_train=*/true), plan.feed.label());
  return plan;
}

// Throws for whatever cannot be done; what it gives can be committed.
Trainer::Impl::FitPlan Trainer::Impl::plan_fit(const FitOptions& given, Fits::Left left, bool needs_loader) const {
  require_open("fit()");
  calls.require_idle("begin()");
  if (fit) throw ConfigError("Trainer: begin() was called before; call end() first");
  if (fits.next == 0) checkpoints.check_trainers();
  check_has_optimizer(state, static_cast<bool>(options.optimizer), "fit");
  check_trains_all(as_module(*state.model), *state.optimizer);
  if (fits.next == 0 || resumption.found) check_field_names(engine);
  FitPlan plan = plan_lasting(given);
  if (!plan.feed && needs_loader)
    throw ConfigError("train_dataloader: is required to fit; give it to the Trainer's options or to fit()");
  if (left == Fits::Left::NOTHING) {
    plan.goal = given.duration && resumption.found ? fits.place->end : state.max_duration;
    return plan;
  }
  plan.reset_time = given.reset_time && left == Fits::Left::ALL;
  plan.from = plan.reset_time ? Timestamp{} : state.timestamp;
  plan.counted_from = left == Fits::Left::REST ? fits.place->from : plan.from;
  plan.goal = goal_of(given, plan.counted_from);
  plan.until = end_of(given, plan.goal, plan.from, plan.feed, needs_loader);

  const std::vector<EvalRun>& runs = plan.evaluators.empty() ? evaluations.runs() : plan.evaluators;
  if (given.eval_dataloader.empty() && (is_chosen(given.eval_interval) || given.eval_subset_num_batches != -1))
    warn("fit: eval_interval and eval_subset_num_batches have no effect without an eval_dataloader beside them");
  if (!given.train_dataloader && given.train_dataloader_label != FitOptions{}.train_dataloader_label)
    warn("fit: train_dataloader_label has no effect without a train_dataloader beside it");
  plan.rates.schedules().set_endless(!plan.until);
  plan.rates.schedules().check(plan.from, plan.until, plan.feed.num_batches());
  if (resumption.found) check_same_batches(resumption.hyperparameters_before, plan.from, plan.feed);
  check_plan(plan, runs, /*gives_batches=*/!needs_loader);
  if (!ranks.alone()) {
    if (plan.metrics) plan.metrics->check_have_sums();
    train_step.metrics().check_have_sums();
    for (const EvalRun& run : runs) run.metrics.check_have_sums();
  }

  const bool scales = options.grad_scaler || plan.precision == Precision::AMP_FP16;
  const MicrobatchSize size = plan.microbatch_size.value_or(train_step.microbatch_size());
  check_step_in_backward(*state.optimizer, engine, !size.is_auto() && size.samples() == 0, scales, options.tune,
                         !ranks.alone());
  if (scales) optim::require_skippable(*state.optimizer, options.grad_scaler ? "grad_scaler" : "precision: amp_fp16");
  check_can_be_sharded(*state.optimizer, ranks.zero_stage());
  train_step.check_divides(engine);
  plan.holds.loader = plan.feed.lease();
  if (given.train_dataloader && plan.from.batch_in_epoch > 0)
    check_position(plan.feed, state.seed, progress().loader_epoch(), plan.from.batch_in_epoch);
  checkpoints.begin_fit(fits.next);
  return plan;
}

// Whether everything that happens at intervals or follows a metric can do so in this fit.
void Trainer::Impl::check_plan(const FitPlan& plan, const std::vector<EvalRun>& runs, bool gives_batches) const {
  FitOutline outline;
  outline.epochs_end = static_cast<bool>(plan.feed);
  outline.zero_stage = ranks.zero_stage();
  outline.sources.push_back((plan.metrics ? *plan.metrics : train_step.metrics()).source());
  for (const EvalRun& run : runs) outline.sources.push_back(run.metrics.source());
  check_labels(outline.sources.front().label, labels_of(runs));

  for (const EvalRun& run : runs) {
    check_share(run.interval, "eval_interval", plan.feed);
    outline.check_interval("eval_interval", run.interval, kOnlyAtEnd, state);
  }
  checkpoints.check_fit(outline, plan.feed, /*may_set_metrics=*/gives_batches || !engine.algorithms().empty());
  plan.rates.schedules().check_fit(outline, state);
  for (const auto& callback : engine.callbacks()) callback.object->check_fit(outline, state);
}

void Trainer::Impl::commit_lasting(FitPlan& plan) {
  train_step.scale_losses(plan.precision, options.grad_scaler);
  resumption.restore_scale(train_step);
  data.use(plan.feed, options, ranks, state);
  if (plan.microbatch_size) train_step.set_microbatch_size(*plan.microbatch_size, options.microbatch_memory);
  check_can_split(state.device_train_microbatch_size, data.feed());
  if (plan.metrics) train_step.set_metrics(std::move(*plan.metrics));
  state.precision = plan.precision;
  if (!plan.evaluators.empty()) evaluations.replace(std::move(plan.evaluators));
  declare_metrics();
  rates = std::move(plan.rates);
  if (plan.reset_time) resumption.waiting.drop({"schedulers", "evaluated"});
  resumption.restore_given(rates.schedules(), evaluations);
  rates.schedules().apply(state);
}

void Trainer::Impl::commit(FitPlan plan) {
  const bool is_saved = checkpoints.have_batch();
  state.timestamp = plan.from;
  state.max_duration = plan.until;
  state.stop.clear_answered();
  if (plan.reset_time) {
    state.previous_timestamp.reset();
    evaluations.count_from_zero();
    checkpoints.count_from_zero();
    fits.owed.reset();
  }
  commit_lasting(plan);
  fits.begin(plan.counted_from, plan.goal);
  if (dist::World* const world = ranks.world()) plan.holds.among_ranks = world->training();
  fit.emplace(data.feed(), std::move(plan.holds)).follows_pause = fits.paused;
  fit->begins_after_pause = fits.paused && is_saved;
  if (options.handle_signals) signals->begin();
  if (plan.goal && *plan.goal != *plan.until) fit->max_duration_afterwards.emplace(plan.goal);
}

// What it sets for the fits after it is set, and nothing else happens.
void Trainer::Impl::skip_fit(FitPlan plan) {
  state.max_duration = plan.goal;
  if (fits.interrupted_by == 0 && fits.next == 0 && ranks.first())
    warn(join("fit: the first ", fits.place->number, " of this program's fits had ended before ",
              resumption.loaded_from, " was saved, and return at once"));
  commit_lasting(plan);
  rates.leave(state);
  ++fits.next;
  if (fits.interrupted_by == 0) {  // what the program has asked this fit, it has done; a signal holds on
    state.stop.see();
    state.stop.answer();
  }
  fit.emplace(data.feed(), std::move(plan.holds)).skipped = true;
}

void Trainer::Impl::check_first_batch() {
  if (fit->source.feed().tokens() > 0) return;
  if (!ranks.alone() && fit->source.feed().samples() == 0) return;  // the other ranks have them
  check_without_tokens(state.max_duration, "max_duration");
  check_without_tokens(state.iteration_length, "iteration_length");
  for (const EvalRun& run : evaluations.runs()) check_without_tokens(run.interval, "eval_interval");
  checkpoints.check_first_batch();
  rates.schedules().check_without_tokens(state);
}

void Trainer::Impl::log_algorithms() {
  if (resumption.found && logged.algorithms) return;
  logged.algorithms = true;
  for (const auto& algorithm : engine.algorithms())
    logger.log_hyperparameters({{join("enabled_algorithms/", algorithm.name), true}});
}

// All that checkpoints say of how the run is trained; of a run that goes on, what has changed.
void Trainer::Impl::log_options() {
  if (!options.auto_log_hparams || std::exchange(logged.options_here, true)) return;
  const StateDict now = hyperparameters({});
  const StateDict new_ones =
      std::exchange(logged.options, true) ? changed(resumption.hyperparameters_before, now) : now;
  std::vector<LogEntry> entries;
  for (const auto& [name, value] : new_ones.entries())
    if (!logger.hyperparameters().contains(name)) entries.push_back({name, log_value(value)});
  if (!entries.empty()) logger.log_hyperparameters(entries);
}

StateDict Trainer::Impl::hyperparameters(const StateDict& before) const {
  return hyperparameters_of(options, state, logger, data.feed(), rates.made(), before);
}

void Trainer::Impl::finish_fit() {
  if (fit->skipped) return fit.reset();
  poll_signals();  // the last one: what comes later is for others
  fits.interrupted_by = fit->ending.signal();
  fits.paused = pauses() || fit->follows_pause;  // it may have failed before it has begun
  if (fit->max_duration_afterwards) state.max_duration = *fit->max_duration_afterwards;
  train_step.end_fit();
  settings.note(as_module(*state.model));
  state.stop.answer();
  signals->end();
  fit.reset();
  rates.leave(state);
  checkpoints.end_fit();
}

// After an error: the gradients and microbatches of a batch that was not counted are dropped. The random numbers that
// it drew stay drawn, and buffers stay as its forward pass left them.
void Trainer::Impl::abandon_fit() {
  if (const Event last = calls.last_of_training();
      last >= Event::BEFORE_TRAIN_BATCH && last <= Event::AFTER_TRAIN_BATCH)
    train_step.abandon();
  state.optimizer->zero_grad(/*set_to_none=*/true);
  checkpoints.abandon_fit();
  finish_fit();
  fits.repeat();
}

// Unset: as long as the caller goes on.
OptionalTime Trainer::Impl::goal_of(const FitOptions& fit, const Timestamp& from) const {
  if (!fit.duration) return state.max_duration;
  check_limit(*fit.duration, "duration", options.iteration_length);
  return *fit.duration + from.get(fit.duration->unit());
}

OptionalTime Trainer::Impl::end_of(const FitOptions& fit, const OptionalTime& goal, const Timestamp& from,
                                   const Feed& feed, bool needs_limit) const {
  OptionalTime until = goal;
  until = scaled(until, fit.scale_schedule_ratio, !fit.schedulers.empty(), " in the same fit()");
  if (fit.step_schedulers_every_batch && fit.schedulers.empty())
    throw ConfigError("step_schedulers_every_batch: has no effect without schedulers in the same fit()");
  if (!until && needs_limit)
    throw ConfigError("max_duration: is required to fit; give it to the Trainer's options, or a duration to fit()");
  if (!until) return until;
  check_limit(*until, "max_duration", options.iteration_length);
  check_epochs_end(*until, options.iteration_length, feed);
  const bool has_work = resumption.found || fits.owes() || evaluations.has_pending();
  const bool nothing_to_do = from.reached(*until) && !has_work;
  if (nothing_to_do && fit.duration && fit.duration->count() == 0)
    throw ConfigError("duration: is ", *fit.duration, ", so there is nothing to do");
  if (nothing_to_do)
    throw ConfigError("max_duration: training has already reached ", *until,
                      ", so there is nothing to do; give fit() a duration, or reset_time");
  return until;
}

void Trainer::Impl::log_hyperparameters() {
  const dist::Environment& environment = options.world->environment();
  const std::int64_t per_node = environment.local_world_size;
  logger.log_hyperparameters({{"composer_version", std::string(COMPOSER_VERSION)},
                              {"num_nodes", std::max<std::int64_t>(ranks.size() / per_node, 1)},
                              {device_support(state.device.type()).key_of_ranks(), per_node},
                              {"rank_zero_seed", static_cast<std::int64_t>(state.seed)}});
}

}  // namespace composer

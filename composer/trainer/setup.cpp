// Checks the options of a trainer, and puts them and the plan of a fit into effect.
#include <string>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/core/model_access.h"
#include "composer/device/device_support.h"
#include "composer/dist/world.h"
#include "composer/step/loss_scaling.h"
#include "composer/trainer/eval_runs.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/fit_planner.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/rank_options.h"
#include "composer/trainer/resume_with.h"
#include "composer/trainer/trainer_options.h"

namespace composer {
namespace {

// Warns of options that say how to load, if there is nothing to load.
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
  scaled_limit(options.max_duration, options.scale_schedule_ratio, !options.schedulers.empty());
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

// Called after INIT, so that an algorithm could change the model before its parameters are counted.
void Trainer::Impl::set_up() {
  settings.begin(as_module(*state.model));
  train_step.set_metrics(MetricSet(metrics_of(*state.model, /*is_train=*/true), options.train_dataloader_label));
  evaluators.replace(eval_runs(options.eval_dataloader, options.eval_interval, options.eval_subset_num_batches, state,
                               ranks, options.microbatch_memory));
  data.begin(options, ranks, state);
  state.max_duration = scaled_limit(options.max_duration, options.scale_schedule_ratio, !options.schedulers.empty());
  rates.begin(SchedulePlan(options.schedulers, options.scale_schedule_ratio, options.step_schedulers_every_batch),
              state);
}

void Trainer::Impl::start_fit(const FitOptions& given, bool needs_loader) {
  try {
    const FitHistory::Remaining remaining = fits.remaining(resumption.found.has_value(), state.stop.asked());
    check_same_fit(ranks, remaining, fits.next);
    const FitPlanner planner{.options = options,
                             .ranks = ranks,
                             .state = state,
                             .engine = engine,
                             .process = process.settings,
                             .train_step = train_step,
                             .data = data,
                             .rates = rates,
                             .evaluators = evaluators,
                             .settings = settings,
                             .fits = fits,
                             .resumption = resumption,
                             .checkpoints = checkpoints};
    FitPlan plan = ranks.together([&] {
      guard.require_open("fit()");
      calls.require_idle("begin()");
      if (fit) throw ConfigError("Trainer: begin() was called before; call end() first");
      FitPlan made = planner.plan(given, remaining, needs_loader);
      if (remaining != FitHistory::Remaining::NOTHING) checkpoints.begin_fit(fits.next);
      return made;
    });
    if (remaining == FitHistory::Remaining::NOTHING) return skip_fit(std::move(plan));
    planner.check_ranks(plan);
    checkpoints.collective().check_folder();
    commit(std::move(plan));
  } catch (...) {
    fits.failed = true;
    if (!fit) checkpoints.end_fit();
    throw;
  }
}

void Trainer::Impl::commit_lasting(FitPlan& plan) {
  train_step.scale_losses(plan.precision, options.grad_scaler);
  resumption.restore_scale(train_step);
  data.use(plan.feed, options, ranks, state);
  if (plan.microbatch_size) train_step.set_microbatch_size(*plan.microbatch_size, options.microbatch_memory);
  check_can_split(state.device_train_microbatch_size, data.feed());
  if (plan.metrics) train_step.set_metrics(std::move(*plan.metrics));
  state.precision = plan.precision;
  if (!plan.evaluators.empty()) evaluators.replace(std::move(plan.evaluators));
  evaluators.declare_metrics(train_step.metrics(), state);
  rates = std::move(plan.rates);
  if (plan.reset_time) resumption.unrestored.drop({"schedulers", "evaluated"});
  resumption.restore_given(rates.schedules(), evaluators);
  rates.schedules().apply(state);
}

void Trainer::Impl::commit(FitPlan plan) {
  const bool is_saved = checkpoints.have_batch();
  state.timestamp = plan.from;
  state.max_duration = plan.until;
  state.stop.clear_answered();
  if (plan.reset_time) {
    state.previous_timestamp.reset();
    evaluators.count_from_zero();
    checkpoints.count_from_zero();
    fits.unfinished.reset();
  }
  commit_lasting(plan);
  evaluators.keep_metrics({});
  fits.begin(plan.counted_from, plan.goal);
  if (dist::World* const world = ranks.world()) plan.holds.among_ranks = world->training();
  fit.emplace(data, ranks, std::move(plan.holds)).follows_pause = fits.paused;
  fit->begins_after_pause = fits.paused && is_saved;
  stopping.begin_fit(options.handle_signals);
  if (plan.goal && *plan.goal != *plan.until) fit->max_duration_afterwards.emplace(plan.goal);
}

// Applies what the options of a skipped fit set for later fits, and does nothing else.
void Trainer::Impl::skip_fit(FitPlan plan) {
  state.max_duration = plan.goal;
  if (fits.interrupted_by == 0 && fits.next == 0 && ranks.first())
    warn(join("fit: the first ", fits.last->number, " of this program's fits had ended before ", resumption.loaded_from,
              " was saved, and return at once"));
  commit_lasting(plan);
  rates.leave(state);
  ++fits.next;
  // A stop requested by the program was for this fit; one after a signal also holds for later fits.
  if (fits.interrupted_by == 0) {
    state.stop.see();
    state.stop.answer();
  }
  fit.emplace(data, ranks, std::move(plan.holds)).skipped = true;
}

void Trainer::Impl::check_first_batch() {
  if (fit->source.feed().tokens() > 0) return;
  if (!ranks.alone() && fit->source.feed().samples() == 0) return;  // the other ranks have samples
  check_without_tokens(state.max_duration, "max_duration");
  check_without_tokens(state.iteration_length, "iteration_length");
  for (const EvalRun& run : evaluators.runs()) check_without_tokens(run.interval, "eval_interval");
  checkpoints.check_first_batch();
  rates.schedules().check_without_tokens(state);
}

void Trainer::Impl::finish_fit() {
  if (fit->skipped) return fit.reset();
  stopping.look_for_signal();  // for the last time: a later signal is not for this fit
  fits.interrupted_by = stopping.signal();
  // The previous fit stays paused if this one has failed before its beginning.
  fits.paused = stopping.pauses() || fit->follows_pause;
  if (fit->max_duration_afterwards) state.max_duration = *fit->max_duration_afterwards;
  train_step.end_fit();
  settings.note(as_module(*state.model));
  state.stop.answer();
  stopping.end_fit();
  fit.reset();
  rates.leave(state);
  checkpoints.end_fit();
}

// Called after an error: drops the gradients and microbatches of a batch that was not counted. Its random numbers are
// not drawn again, and buffers stay as its forward pass left them.
void Trainer::Impl::abandon_fit() {
  if (const Event last = calls.last_of_training();
      last >= Event::BEFORE_TRAIN_BATCH && last <= Event::AFTER_TRAIN_BATCH)
    train_step.abandon();
  state.optimizer->zero_grad(/*set_to_none=*/true);
  checkpoints.abandon_fit();
  finish_fit();
  fits.repeat();
}

}  // namespace composer

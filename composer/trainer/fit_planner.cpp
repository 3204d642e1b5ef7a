#include "composer/trainer/fit_planner.h"

#include <torch/optim/optimizer.h>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/fit_outline.h"
#include "composer/core/model_access.h"
#include "composer/core/plugin_state.h"
#include "composer/step/loss_scaling.h"
#include "composer/step/model_settings.h"
#include "composer/step/train_step.h"
#include "composer/trainer/call_options.h"
#include "composer/trainer/checkpoints.h"
#include "composer/trainer/eval_runs.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/progress.h"
#include "composer/trainer/rank_options.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/trainer.h"
#include "composer/trainer/training_data.h"

namespace composer {

FitPlan FitPlanner::plan(const FitOptions& given, FitHistory::Remaining remaining, bool needs_loader) const {
  if (fits.next == 0) checkpoints.check_trainers();
  check_has_optimizer(state, static_cast<bool>(options.optimizer), "fit");
  check_trains_all(as_module(*state.model), *state.optimizer);
  if (fits.next == 0 || resumption.found) check_field_names(engine);
  FitPlan plan = plan_lasting(given);
  if (!plan.feed && needs_loader)
    throw ConfigError("train_dataloader: is required to fit; give it to the Trainer's options or to fit()");
  if (remaining == FitHistory::Remaining::NOTHING) {
    plan.goal = given.duration && resumption.found ? fits.last->end : state.max_duration;
    return plan;
  }
  plan.reset_time = given.reset_time && remaining == FitHistory::Remaining::ALL;
  plan.from = plan.reset_time ? Timestamp{} : state.timestamp;
  plan.counted_from = remaining == FitHistory::Remaining::REST ? fits.last->from : plan.from;
  plan.goal = goal_of(given, plan.counted_from);
  plan.until = end_of(given, plan, needs_loader);

  if (given.eval_dataloader.empty() && (is_chosen(given.eval_interval) || given.eval_subset_num_batches != -1))
    warn("fit: eval_interval and eval_subset_num_batches have no effect without an eval_dataloader beside them");
  if (!given.train_dataloader && given.train_dataloader_label != FitOptions{}.train_dataloader_label)
    warn("fit: train_dataloader_label has no effect without a train_dataloader beside it");
  plan.rates.schedules().set_endless(!plan.until);
  plan.rates.schedules().check(plan.from, plan.until, plan.feed.num_batches());
  if (resumption.found) check_same_batches(resumption.hyperparameters_before, plan.from, plan.feed);
  check_intervals(plan, /*gives_batches=*/!needs_loader);
  check_step(plan);
  plan.holds.loader = plan.feed.lease();
  if (resumption.found) check_same_epoch(plan);
  if (given.train_dataloader && plan.from.batch_in_epoch > 0) {
    const Progress progress{.now = plan.from, .iteration_length = state.iteration_length};
    check_position(plan.feed, state.seed, progress.loader_epoch(), plan.from.batch_in_epoch);
  }
  return plan;
}

// The part of the plan that also holds for later fits.
FitPlan FitPlanner::plan_lasting(const FitOptions& given) const {
  check(given, fit_options());
  check_is_saved(given.train_dataloader);
  FitPlan plan{.feed = data.of_fit(given, options, ranks),
               .precision = given.precision.value_or(state.precision),
               .microbatch_size = given.device_train_microbatch_size,
               .evaluators = eval_runs(given.eval_dataloader, given.eval_interval, given.eval_subset_num_batches, state,
                                       ranks, options.microbatch_memory),
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

// Unset: the caller ends the fit.
OptionalTime FitPlanner::goal_of(const FitOptions& given, const Timestamp& from) const {
  if (!given.duration) return state.max_duration;
  check_limit(*given.duration, "duration", options.iteration_length);
  return *given.duration + from.get(given.duration->unit());
}

// The goal as this fit alone changes it.
OptionalTime FitPlanner::end_of(const FitOptions& given, const FitPlan& plan, bool needs_limit) const {
  const OptionalTime until =
      scaled_limit(plan.goal, given.scale_schedule_ratio, !given.schedulers.empty(), " in the same fit()");
  if (given.step_schedulers_every_batch && given.schedulers.empty())
    throw ConfigError("step_schedulers_every_batch: has no effect without schedulers in the same fit()");
  if (!until && needs_limit)
    throw ConfigError("max_duration: is required to fit; give it to the Trainer's options, or a duration to fit()");
  if (!until) return until;
  check_limit(*until, "max_duration", options.iteration_length);
  check_epochs_end(*until, options.iteration_length, plan.feed);
  const bool has_work = resumption.found || fits.has_unfinished() || evaluators.has_pending();
  const bool nothing_to_do = plan.from.reached(*until) && !has_work;
  if (nothing_to_do && given.duration && given.duration->count() == 0)
    throw ConfigError("duration: is ", *given.duration, ", so there is nothing to do");
  if (nothing_to_do)
    throw ConfigError("max_duration: training has already reached ", *until,
                      ", so there is nothing to do; give fit() a duration, or reset_time");
  return until;
}

// Checks that everything that happens at intervals or depends on a metric can do so in this fit.
void FitPlanner::check_intervals(const FitPlan& plan, bool gives_batches) const {
  const std::vector<EvalRun>& runs = runs_of(plan);
  FitOutline outline;
  outline.epochs_end = static_cast<bool>(plan.feed);
  outline.zero_stage = ranks.zero_stage();
  outline.sources.push_back(metrics_of_training(plan).source());
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

// Checks that the epoch in which a resumed run stands has as many batches as before.
void FitPlanner::check_same_epoch(const FitPlan& plan) const {
  const bool may_differ = ranks.have_own_loaders() && !ranks.first();  // the checkpoint is that of rank 0
  if (!resumption.epoch_batches || !plan.feed || plan.from.batch_in_epoch == 0 || may_differ) return;
  const Progress progress{.now = plan.from, .iteration_length = state.iteration_length};
  check_same_length(*resumption.epoch_batches, plan.from, plan.feed, state.seed, progress.loader_epoch());
}

// Checks that the optimizer, the algorithms and the number of ranks allow the steps of the fit.
void FitPlanner::check_step(const FitPlan& plan) const {
  if (!ranks.alone()) {
    if (plan.metrics) plan.metrics->check_have_sums();
    train_step.metrics().check_have_sums();
    for (const EvalRun& run : runs_of(plan)) run.metrics.check_have_sums();
  }
  const bool scales = scales_losses(plan.precision, options.grad_scaler);
  const MicrobatchSize size = plan.microbatch_size.value_or(train_step.microbatch_size());
  check_step_in_backward(*state.optimizer, engine,
                         {.whole_batches = !size.is_auto() && size.samples() == 0,
                          .scales_losses = scales,
                          .tunes = options.tune,
                          .several_ranks = !ranks.alone()});
  if (scales) optim::require_skippable(*state.optimizer, options.grad_scaler ? "grad_scaler" : "precision: amp_fp16");
  check_can_be_sharded(*state.optimizer, ranks.zero_stage());
  train_step.ranks().check_divides(engine);
}

void FitPlanner::check_ranks(const FitPlan& plan) const {
  check_same_plan(ranks, plan,
                  {.options = options,
                   .state = state,
                   .metrics = metrics_of_training(plan),
                   .runs = runs_of(plan),
                   .settings = settings,
                   .saved_by_all = checkpoints.collective().is_needed()});
}

const std::vector<EvalRun>& FitPlanner::runs_of(const FitPlan& plan) const {
  return plan.evaluators.empty() ? evaluators.runs() : plan.evaluators;
}

const MetricSet& FitPlanner::metrics_of_training(const FitPlan& plan) const {
  return plan.metrics ? *plan.metrics : train_step.metrics();
}

}  // namespace composer

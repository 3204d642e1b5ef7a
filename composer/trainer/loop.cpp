// Fires the events of training, in reading order; those of evaluation and prediction are in evaluation_loop.cpp. How a
// batch is trained is in step/train_step.cpp, what is counted is in training_time.cpp, and what options mean is in
// setup.cpp.
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torch/optim/optimizer.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/random_streams.h"

namespace composer {
namespace {

// Warns once per fit. begin() has set the model to training mode.
void warn_of_eval_mode(Fit& fit, const State& state) {
  if (is_training(as_module(*state.model)) || std::exchange(fit.warned_of_mode, true)) return;
  warn(join("model: is in evaluation mode at batch ", state.timestamp.batch,
            ", so it trains without dropout and with fixed batch norms; call model->train() before the step"));
}

}  // namespace

void Trainer::Impl::construct() {
  checkpoints.identity().begin(/*has_callbacks=*/!engine.callbacks().empty());
  auto before_init = state.optimizer ? optim::parameters_of(as_module(*state.model)) : optim::NamedParameters();
  try {
    events.fire(Event::INIT);
  } catch (...) {
    checkpoints.identity().refuse();
    throw;
  }
  make_optimizer(std::move(before_init));
  hyperparameters.log_run();
  set_up();
  events.fire(Event::BEFORE_LOAD);
  run->load_first();
  checkpoints.paths().share();
  replicas.share_model(weights_in_use);
  tuning.use_saved_products();
  {
    // An algorithm may put the weights that it returns into the model, which changes no value.
    const WeightsInUse::Unchanged loaded(weights_in_use, WeightsInUse::Trust::HANDED_OUT);
    events.fire(Event::AFTER_LOAD);
  }
  rates.read(state);
}

void Trainer::Impl::begin() {
  hyperparameters.log_algorithms(/*goes_on=*/resumption.found.has_value());
  settings.train(as_module(*state.model));
  tuning.begin_fit(*fit, time.progress(), /*goes_on=*/resumption.found.has_value());
  hyperparameters.log_options(resumption.hyperparameters_before);
  if (fit->follows_pause) resumption.keep_random(process.random);
  checkpoints.save_begin(/*due=*/fit->begins_after_pause);
  fit->follows_pause = false;
  events.fire(Event::FIT_START);
  resumption.restore_settings(as_module(*state.model));
  check_trains_all(as_module(*state.model), *state.optimizer);
  settings.train(as_module(*state.model));  // also modules made at FIT_START
  settings.note(as_module(*state.model));
  resumption.compare_options(ranks, [this] { return hyperparameters.now(); });
  resumption.report_resume(options, state, time.progress(), /*in_first_fit=*/fits.number() == 0);
  replicas.compare();
  checkpoints.note_resumed(resumption);
  resumption.note_resumed(state.timestamp);
  resumption.restore_random(process.random);
  finish_pending();
  if (resumption.finish_again(state.stop)) checkpoints.set_finished();
  train_step.begin_fit(engine, options.cuda_graph);
}

// Does what was due when a signal or an error ended the previous fit.
void Trainer::Impl::finish_pending() {
  evaluation_loop.run(evaluators.pending());
  // If another state was loaded meanwhile, nothing is left to do.
  if (fits.unfinished && fits.unfinished->from == Unfinished::END) fire_end(fits.unfinished->ended);
  if (fits.unfinished && fits.unfinished->from == Unfinished::EVALUATIONS) evaluate_if_due(fits.unfinished->ended);
  if (fits.unfinished) checkpoint(fits.unfinished->checkpoint);
}

// Trains one batch, or ends an epoch; false: training is over. The position is only in state.timestamp, so a run that
// stops between two steps continues from there.
bool Trainer::Impl::step() {
  checkpoints.measured().take_metrics(state);  // values measured since the last step, before the weights change
  const Progress before = time.progress();
  if (stopping.decide_with_ranks(before.limit_reached())) return false;
  seed_by_place(process.random, state, ranks);
  if (before.iteration_is_over()) {  // the run was saved before the end of the iteration was counted
    end_iteration();
    return !fit->source.has_given() || step();
  }
  if (before.now.epoch_in_iteration == 0 && before.now.batch_in_epoch == 0) events.fire(Event::ITERATION_START);
  if (state.timestamp.batch_in_epoch == 0) {
    events.fire(Event::EPOCH_START);
    time.log_epoch();
  }

  events.fire(Event::BEFORE_DATALOADER);
  if (!fit->source.read(state, time.progress().loader_epoch(), [this] { train_step.forget_batch(); })) {
    end_epoch();
    return true;
  }
  if (std::exchange(fit->first_batch, false)) check_first_batch();
  events.fire(Event::AFTER_DATALOADER);
  events.fire(Event::BATCH_START);
  checkpoints.measured().before_step(state);  // values measured up to here
  time.log_batch();
  const Feed& feed = fit->source.feed();
  warn_of_eval_mode(*fit, state);
  train_step.start(feed, time.since_last_start());
  {
    // Metrics are of the weights before the step.
    const auto stepped = c10::make_scope_exit([this] { weights_in_use.stepped(); });
    train_step.step_optimizer(feed, [this](bool counts) { return train_batch(counts); });
    time.count_batch_after(train_step.microbatches().of_all_ranks(), [this] { train_step.log(); });
  }
  tuning.warn_if_late();
  checkpoints.measured().after_step(state);
  fire_end(Event::BATCH_END);
  evaluate_if_due(Event::BATCH_END);
  checkpoint(Event::BATCH_CHECKPOINT);
  if (time.progress().token_iteration_is_over()) end_iteration();
  return true;
}

void Trainer::Impl::end_epoch() {
  train_step.log_epoch();
  time.count_epoch();
  tuning.end_epoch(*fit, time.progress());
  fire_end(Event::EPOCH_END);
  evaluate_if_due(Event::EPOCH_END);
  checkpoint(Event::EPOCH_CHECKPOINT);
  if (time.progress().epoch_iteration_is_over()) end_iteration();
}

void Trainer::Impl::end_iteration() {
  time.count_iteration();
  fire_end(Event::ITERATION_END);
  evaluate_if_due(Event::ITERATION_END);
  checkpoint(Event::ITERATION_CHECKPOINT);
}

// The closure of the optimizer's step: computes the gradients of state.batch and returns the loss. In a pass of a
// StepRule that does not count, only algorithms see the events of the batch.
at::Tensor Trainer::Impl::train_batch(bool counts) {
  const auto fire = [&](Event event) { counts ? events.fire(event) : events.fire_for_algorithms(event); };
  fire(Event::BEFORE_TRAIN_BATCH);
  train_step.zero_gradients();
  for (std::size_t i = 0; i < train_step.microbatches().size(); ++i) {
    train_step.enter(fit->source.feed(), i);
    tuning.start_microbatch();
    fire(Event::BEFORE_FORWARD);
    train_step.forward();
    fire(Event::AFTER_FORWARD);

    fire(Event::BEFORE_LOSS);
    train_step.loss();
    fire(Event::AFTER_LOSS);
    if (std::exchange(fit->first_loss, false) && run) train_step.warn_of_outside_leaves();  // a trial does not warn

    fire(Event::BEFORE_BACKWARD);
    train_step.backward();
    tuning.end_microbatch();
    fire(Event::AFTER_BACKWARD);

    train_step.update_metrics();
  }
  train_step.leave();
  if (counts) fire(Event::AFTER_TRAIN_BATCH);
  return state.batch_loss.at("total");
}

// Closes an epoch that the limit, a request to stop or the caller ends; otherwise the step that finds no more batches
// closes it.
void Trainer::Impl::end() {
  fits.end_is_unfinished = true;
  stopping.look_for_signal();
  if (time.progress().epoch_is_complete()) end_epoch();
  if (time.progress().iteration_is_over()) end_iteration();
  train_step.stop_if_last_is_nan();
  stopping.decide_last_with_ranks();
  state.stop.see();
  checkpoints.save_last();
  time.log_last();
  events.fire(Event::FIT_END);
  checkpoints.warn_if_changed();
  replicas.compare(/*modes=*/false);
  evaluate_if_due(Event::FIT_END);  // after FIT_END, as in Composer
  replicas.share_last_buffers(weights_in_use);
  state.optimizer->zero_grad(/*set_to_none=*/true);
  checkpoints.finish();
  fits.end_is_unfinished = false;
  fits.failed = false;
  if (ranks.first()) train_step.warn_of_nan();
  checkpoints.warn_of_signal(stopping.signal());
  checkpoints.wait_for_mirror();  // last, because it may take long or fail
}

void Trainer::Impl::fire_end(Event event) {
  // The event is not fired again, even if a callback throws.
  if (fits.unfinished) fits.unfinished->from = Unfinished::EVALUATIONS;
  events.fire(event);
}

void Trainer::Impl::evaluate_if_due(Event event) {
  const std::vector<EvalRun*> due = evaluation_loop.take_due(event);
  if (fits.unfinished) fits.unfinished->from = Unfinished::CHECKPOINT;
  evaluation_loop.run(due);
}

// Fires the event at which checkpoints are due, then saves the trainer's checkpoint.
void Trainer::Impl::checkpoint(Event event) {
  if (fits.unfinished && fits.unfinished->from != Unfinished::SAVE) {
    fits.unfinished->from = Unfinished::SAVE;
    events.fire(event);
  }
  checkpoints.save_if_due(event);
  fits.unfinished.reset();
}

}  // namespace composer

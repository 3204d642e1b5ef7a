// When each event fires: every event of a trainer's life is in this file, in the order in which you read it. How things
// are done is in train_step.cpp, what is counted and logged in counting.cpp, what options mean in setup.cpp.
#include <algorithm>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torch/optim/optimizer.h>

#include "composer/core/model_access.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/impl.h"
#include "composer/util/autocast.h"

namespace composer {
namespace {

// Copies that owe nothing to inference mode or to the memory of the batch.
Outputs on_cpu(const Outputs& outputs) {
  Outputs copy;
  for (const auto& [name, tensor] : outputs) copy.set(name, tensor.is_cpu() ? tensor.clone() : tensor.cpu());
  return copy;
}

Outputs eval_forward(Model& model, const Batch& batch) { return eval_forward_of(model, batch, nullptr); }

}  // namespace

void Trainer::Impl::Opened::cut_short() {
  open_ = false;
  try {
    trainer_.fire(closes_);
  } catch (const std::exception& error) {
    warn(join("after a signal: ", describe(error)));
  }
}

void Trainer::Impl::construct() {
  checkpoints.begin_run(/*has_callbacks=*/!engine.callbacks().empty());
  auto before_init = state.optimizer ? optim::parameters_of(as_module(*state.model)) : optim::NamedParameters();
  open_plugins();
  make_optimizer(std::move(before_init));
  hyperparameters.log_run();
  set_up();
  fire(Event::BEFORE_LOAD);
  run->load_first();
  checkpoints.share_paths();
  share_model();
  tuning.use_saved_products();
  {
    // An algorithm may put what it hands out where the model is, which changes no value.
    const WeightsInUse::Unchanged loaded(weights_in_use, WeightsInUse::Trust::HANDED_OUT);
    fire(Event::AFTER_LOAD);
  }
  rates.read(state);
}

void Trainer::Impl::open_plugins() {
  try {
    fire(Event::INIT);
  } catch (...) {
    checkpoints.refuse_run();
    throw;
  }
}

void Trainer::Impl::begin() {
  hyperparameters.log_algorithms(/*goes_on=*/resumption.found.has_value());
  settings.train(as_module(*state.model));
  tuning.begin_fit(*fit, progress(), /*goes_on=*/resumption.found.has_value());
  hyperparameters.log_options(resumption.hyperparameters_before);
  if (fit->follows_pause) resumption.keep_random(process.random);
  checkpoints.save_begin(/*due=*/fit->begins_after_pause);
  fit->follows_pause = false;
  fire(Event::FIT_START);
  resumption.restore_settings(as_module(*state.model));
  check_trains_all(as_module(*state.model), *state.optimizer);
  settings.train(as_module(*state.model));  // also what was made at FIT_START
  settings.note(as_module(*state.model));
  resumption.compare_options(ranks, [this] { return hyperparameters.now(); });
  resumption.tell(options, state, progress(), /*in_first_fit=*/fits.number() == 0);
  replicas.compare();
  checkpoints.note_begun(resumption);
  resumption.go_on(state.timestamp);
  resumption.restore_random(process.random);
  make_up();
  if (const std::string finished = resumption.finished(); !finished.empty()) {
    checkpoints.note_finish();
    state.stop.ask(finished, Stop::FINISHED);
    resumption.waiting.drop({"stop"});
  }
  train_step.begin_fit(engine, options.cuda_graph);
}

// What was due when a signal or an error ended the fit before.
void Trainer::Impl::make_up() {
  evaluate_all(evaluations.pending());
  // Whoever loads another state meanwhile owes nothing any more.
  if (fits.owed && fits.owed->from == Owed::END) fire_end(fits.owed->ended);
  if (fits.owed && fits.owed->from == Owed::EVALUATIONS) evaluate_if_due(fits.owed->ended);
  if (fits.owed) checkpoint(fits.owed->checkpoint);
}

// One batch, or the end of an epoch; false: training is over. Where we are is in state.timestamp alone, so a run that
// stops between two steps goes on from there.
bool Trainer::Impl::step() {
  checkpoints.note_metrics();  // what was measured since the last step, before the weights change
  const bool asked = stop_asked();
  const Progress before = progress();
  if (fit->ending.decide(before.limit_reached(), asked)) return false;
  draw_by_rank();
  if (before.iteration_is_over()) {  // the run was saved before it had ended that
    end_iteration();
    return !fit->source.has_given() || step();
  }
  if (state.timestamp.epoch_in_iteration == 0 && state.timestamp.batch_in_epoch == 0) fire(Event::ITERATION_START);
  if (state.timestamp.batch_in_epoch == 0) {
    fire(Event::EPOCH_START);
    log_epoch();
  }

  fire(Event::BEFORE_DATALOADER);
  if (!next_batch()) {
    end_epoch();
    return true;
  }
  if (std::exchange(fit->first_batch, false)) check_first_batch();
  fire(Event::AFTER_DATALOADER);
  fire(Event::BATCH_START);
  checkpoints.note_step();  // the same, up to here
  log_batch_time();
  const Feed& feed = fit->source.feed();
  train_step.start(feed, time_of_ranks());
  {
    const auto stepped = c10::make_scope_exit([this] { weights_in_use.stepped(); });  // metrics are of those before
    train_step.step_optimizer(feed, [this](bool counts) { return train_batch(counts); });
    count_batch_after([this] {
      train_step.log();
      train_step.report_metrics();
    });
  }
  checkpoints.note_trained();
  fire_end(Event::BATCH_END);
  evaluate_if_due(Event::BATCH_END);
  checkpoint(Event::BATCH_CHECKPOINT);
  if (progress().token_iteration_is_over()) end_iteration();
  return true;
}

void Trainer::Impl::end_epoch() {
  train_step.report_metrics();
  count_epoch();
  tuning.end_epoch(*fit, progress());
  fire_end(Event::EPOCH_END);
  evaluate_if_due(Event::EPOCH_END);
  checkpoint(Event::EPOCH_CHECKPOINT);
  if (progress().epoch_iteration_is_over()) end_iteration();
}

void Trainer::Impl::end_iteration() {
  count_iteration();
  fire_end(Event::ITERATION_END);
  evaluate_if_due(Event::ITERATION_END);
  checkpoint(Event::ITERATION_CHECKPOINT);
}

// The closure of the optimizer's step: gradients of state.batch. Returns the loss. A pass of a StepRule that does not
// count changes the batch as algorithms do, and no callback sees it.
at::Tensor Trainer::Impl::train_batch(bool counts) {
  fire(Event::BEFORE_TRAIN_BATCH, counts);
  train_step.zero_gradients();
  for (std::size_t i = 0; i < train_step.num_microbatches(); ++i) {
    train_step.enter(fit->source.feed(), i);
    tuning.start_microbatch();

    fire(Event::BEFORE_FORWARD, counts);
    train_step.forward();
    fire(Event::AFTER_FORWARD, counts);

    fire(Event::BEFORE_LOSS, counts);
    train_step.loss();
    fire(Event::AFTER_LOSS, counts);
    if (std::exchange(fit->first_loss, false) && run) train_step.warn_of_outside_leaves();  // a trial says nothing

    fire(Event::BEFORE_BACKWARD, counts);
    train_step.backward();
    tuning.end_microbatch();
    fire(Event::AFTER_BACKWARD, counts);

    train_step.update_metrics();
  }
  train_step.leave();
  if (counts) fire(Event::AFTER_TRAIN_BATCH);
  return state.batch_loss.at("total");
}

// An epoch that the limit, a request to stop or the caller ends is closed here; any other by the step that finds no
// more batches.
void Trainer::Impl::end() {
  fits.end_is_owed = true;
  poll_signals();
  if (progress().epoch_is_complete()) end_epoch();
  if (progress().iteration_is_over()) end_iteration();
  const bool asked = stop_asked();
  fit->ending.decide_last(progress().limit_reached(), asked);
  state.stop.see();
  checkpoints.save_last();
  log_final_time();
  fire(Event::FIT_END);
  checkpoints.tell_changed();
  replicas.compare(/*modes=*/false);
  evaluate_if_due(Event::FIT_END);  // after FIT_END, as in Composer
  share_last_buffers();
  state.optimizer->zero_grad(/*set_to_none=*/true);
  checkpoints.finish();
  fits.end_is_owed = false;
  fits.failed = false;
  tell_nan();
  checkpoints.tell_interrupted(fit->ending.signal());
  checkpoints.wait_for_mirror();  // the last, because it may take long or fail
}

void Trainer::Impl::fire_end(Event event) {
  // An event that was fired is not fired again, also if a callback throws.
  if (fits.owed) fits.owed->from = Owed::EVALUATIONS;
  fire(event);
}

void Trainer::Impl::evaluate_if_due(Event event) {
  const bool interrupted = poll_signals();
  std::vector<EvalRun*> due;
  if (state.previous_timestamp && !evaluations.runs().empty()) {
    IntervalMoment moment = progress().moment_of(event, state.dataloader_len);
    moment.last = event == Event::FIT_END;
    const std::uint64_t weights = moment.last ? weights_in_use.version() : 0;
    due = due_on_all_ranks(evaluations.due(event, moment, state, weights), moment.last);
  }
  if (event == Event::FIT_END && interrupted) return;  // the run has not ended
  if (!due.empty() && !pauses()) evaluations.mark_due(due, state.timestamp.batch, weights_in_use.version());
  if (fits.owed) fits.owed->from = Owed::CHECKPOINT;
  if (!interrupted) evaluate_all(due);
}

// The event at which checkpoints are due, and the trainer's own.
void Trainer::Impl::checkpoint(Event event) {
  if (fits.owed && fits.owed->from != Owed::SAVE) {
    fits.owed->from = Owed::SAVE;
    fire(event);
  }
  checkpoints.save_if_due(event);
  fits.owed.reset();
}

void Trainer::Impl::evaluate_all(const std::vector<EvalRun*>& runs) {
  if (runs.empty()) return;
  const Unbilled unbilled(fit ? &*fit : nullptr);
  const OwnRandom of_all = random_aside("");
  const RandomScope draws(of_all);
  const WeightsInUse::Scope weights(weights_in_use, WeightsUse::EVALUATION);
  share_buffers();
  Opened all(*this, Event::EVAL_BEFORE_ALL, Event::EVAL_AFTER_ALL);
  for (EvalRun* run : runs) {
    const OwnRandom own = random_aside(run->feed.label());
    const RandomScope draws_own(own);
    if (!evaluate(*run, run->feed)) return all.cut_short();
    evaluations.done(*run);
    if (!pauses()) rates.schedules().observe(state, run->feed.label());
  }
  all.close();
  weights_in_use.version();  // what was changed meanwhile is no longer what was measured
}

// False: interrupted, so there are no metrics. Values of a part of the data, of other data, or of weights that were
// changed meanwhile, judge no checkpoint.
bool Trainer::Impl::evaluate(EvalRun& run, Feed& feed, bool judges, bool to_the_end) {
  const Flag now(asides.evaluating);
  const AsideScope aside(state, feed);
  AsideForward forward(state, asides.plan, feed, &eval_forward);
  state.eval_timestamp = {};
  Opened evaluation(*this, Event::EVAL_START, Event::EVAL_END);
  run.metrics.reset();
  run.microbatch.begin(state.device);
  const std::uint64_t before = weights_in_use.version();
  for (feed.seek(0, 0); next_batch_aside(feed, state.eval_timestamp);) {
    fire(Event::EVAL_BATCH_START);
    evaluate_batch(run, feed, forward);
    count_batch_aside(feed, state.eval_timestamp);
    fire(Event::EVAL_BATCH_END);
    if (!to_the_end && poll_signals()) {
      evaluation.cut_short();
      return false;
    }
  }
  const bool of_one_model = weights_in_use.version() == before;
  run.metrics.report(state, logger, /*keep_if_empty=*/false, ranks.world());
  if (!judges || !of_one_model) state.metrics.outdate(feed.label());
  evaluation.close();
  checkpoints.note_evaluation();
  return true;
}

void Trainer::Impl::evaluate_batch(EvalRun& run, const Feed& feed, AsideForward& forward) {
  if (!ranks.alone() && feed.samples() == 0) return;  // this one has no sample of a small last batch
  std::vector<at::Tensor> metrics;                    // before this part
  const auto use = [&](Batch part) {
    if (run.microbatch.is_auto()) metrics = run.metrics.kept();
    state.batch = std::move(part);
    feed.to_device(state.batch, state.device);
    fire(Event::EVAL_BEFORE_FORWARD);
    {
      const WeightsInUse::Forward passing(weights_in_use);
      forward();
    }
    fire(Event::EVAL_AFTER_FORWARD);
    const WeightsInUse::Forward measuring(weights_in_use);  // it may count in a buffer
    const AutocastScope autocast(state.precision, state.device);
    run.metrics.update(*state.model, state.batch, state.outputs);
  };
  const auto undo = [&] {
    run.metrics.restore(metrics);
    state.batch = {};
    state.outputs = {};
  };
  run.microbatch.for_each_part(feed, Batch(state.batch), state.device, use, undo);
}

void Trainer::Impl::eval(std::vector<EvalRun>& runs, std::int64_t subset_num_batches, bool to_the_end) {
  const Unbilled unbilled(fit ? &*fit : nullptr);
  const std::int64_t call = asides.next_call(state.timestamp.batch);
  const OwnRandom of_all = random_aside("", call);
  const RandomScope draws(of_all);
  const WeightsInUse::Scope weights(weights_in_use, WeightsUse::EVALUATION);
  share_buffers();
  Opened all(*this, Event::EVAL_STANDALONE_START, Event::EVAL_STANDALONE_END);
  for (EvalRun& run : runs) {
    const OwnRandom own = random_aside(run.feed.label(), call);
    const RandomScope draws_own(own);
    Feed feed = subset_num_batches == -1 ? run.feed : run.feed.with_subset(subset_num_batches);
    const bool counts = evaluations.judges(run, feed, /*is_cut=*/subset_num_batches != -1, ranks);
    if (!evaluate(run, feed, counts, to_the_end)) break;
  }
  all.close();
  weights_in_use.version();
}

std::vector<Outputs> Trainer::Impl::predict(Feed feed, bool return_outputs) {
  std::vector<Outputs> results;
  const Unbilled unbilled(fit ? &*fit : nullptr);
  const Flag now(asides.predicting);
  const OwnRandom own = random_aside("predict", asides.next_call(state.timestamp.batch));
  const RandomScope draws(own);
  const WeightsInUse::Scope weights(weights_in_use, WeightsUse::EVALUATION);
  share_buffers();
  const AsideScope aside(state, feed);
  AsideForward forward(state, asides.plan, feed, forward_of);
  state.predict_timestamp = {};
  Opened prediction(*this, Event::PREDICT_START, Event::PREDICT_END);
  for (feed.seek(0, 0); next_batch_aside(feed, state.predict_timestamp);) {
    feed.to_device(state.batch, state.device);
    fire(Event::PREDICT_BATCH_START);
    if (feed.samples() > 0 || ranks.alone()) {  // a rank may have no sample of a small last batch
      fire(Event::PREDICT_BEFORE_FORWARD);
      {
        const WeightsInUse::Forward passing(weights_in_use);
        forward();
      }
      fire(Event::PREDICT_AFTER_FORWARD);
      if (return_outputs) results.push_back(on_cpu(state.outputs));
    }
    count_batch_aside(feed, state.predict_timestamp);
    fire(Event::PREDICT_BATCH_END);
  }
  prediction.close();
  weights_in_use.version();
  return results;
}

}  // namespace composer

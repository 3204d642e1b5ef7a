// When each event fires: every event of a trainer's life is in this file, in the order in which you read it. How things
// are done is in train_step.cpp, what is counted and decided in progress.cpp, what options mean in setup.cpp.
#include <utility>

#include <torch/optim/optimizer.h>

#include "composer/step/precision.h"
#include "composer/trainer/fit_checks.h"
#include "composer/trainer/impl.h"

namespace composer {
namespace {

// Copies that owe nothing to inference mode or to the memory of the batch.
Outputs on_cpu(const Outputs& outputs) {
  Outputs copy;
  for (const auto& [name, tensor] : outputs) copy.set(name, tensor.is_cpu() ? tensor.clone() : tensor.cpu());
  return copy;
}

Outputs eval_forward(Model& model, const Batch& batch) { return model.eval_forward(batch, nullptr); }

}  // namespace

void Trainer::Impl::construct() {
  fire(Event::INIT);
  make_optimizer();
  log_hyperparameters();
  set_up();
  fire(Event::BEFORE_LOAD);
  load_checkpoint();
  fire(Event::AFTER_LOAD);
  read_learning_rates();
}

void Trainer::Impl::begin() {
  fire(Event::FIT_START);
  check_trains_all(*state.model, *state.optimizer);
  state.model->train();
  resume_fit();
  train_step.use_rule(engine);
  if (options.cuda_graph) train_step.use_graph(engine);
}

// One batch, or the end of an epoch; false: training is over. Where we are is in state.timestamp alone, so a run that
// stops between two steps goes on from there.
bool Trainer::Impl::step() {
  if (limit_reached()) return false;
  if (iteration_is_over()) {  // the run was saved before it had ended that
    end_iteration();
    return true;
  }
  if (state.timestamp.epoch_in_iteration == 0 && state.timestamp.batch_in_epoch == 0) fire(Event::ITERATION_START);
  if (state.timestamp.batch_in_epoch == 0) {
    fire(Event::EPOCH_START);
    log_epoch();
  }

  fire(Event::BEFORE_DATALOADER);
  if (next_batch()) {
    if (std::exchange(first_batch, false)) check_first_batch();
    fire(Event::AFTER_DATALOADER);
    fire(Event::BATCH_START);
    log_batch_time();
    train_step.start(train);
    train_step.step_optimizer(train, [this] { return train_batch(); });
    train_step.log();
    train_step.report_metrics();
    count_batch();
    fire(Event::BATCH_END);
    evaluate_if_due(Event::BATCH_END);
    fire(Event::BATCH_CHECKPOINT);
    save_if_due(Event::BATCH_CHECKPOINT);

    if (token_iteration_is_over()) {
      end_iteration();
      return true;
    }
    // An epoch whose end is known ends with the limit; otherwise the next step looks for more batches first.
    if (!limit_reached() || !epoch_is_complete()) return true;
  }

  train_step.report_metrics();
  count_epoch();
  fire(Event::EPOCH_END);
  evaluate_if_due(Event::EPOCH_END);
  fire(Event::EPOCH_CHECKPOINT);
  save_if_due(Event::EPOCH_CHECKPOINT);

  if (epoch_iteration_is_over()) end_iteration();
  return true;
}

void Trainer::Impl::end_iteration() {
  count_iteration();
  fire(Event::ITERATION_END);
  evaluate_if_due(Event::ITERATION_END);
  fire(Event::ITERATION_CHECKPOINT);
  save_if_due(Event::ITERATION_CHECKPOINT);
}

// The closure of the optimizer's step: gradients of state.batch. Returns the loss.
at::Tensor Trainer::Impl::train_batch() {
  fire(Event::BEFORE_TRAIN_BATCH);
  train_step.zero_gradients();
  for (std::size_t i = 0; i < train_step.num_microbatches(); ++i) {
    train_step.enter(train, i);

    fire(Event::BEFORE_FORWARD);
    train_step.forward();
    fire(Event::AFTER_FORWARD);

    fire(Event::BEFORE_LOSS);
    train_step.loss();
    fire(Event::AFTER_LOSS);

    fire(Event::BEFORE_BACKWARD);
    train_step.backward();
    fire(Event::AFTER_BACKWARD);

    train_step.update_metrics();
  }
  train_step.leave();
  fire(Event::AFTER_TRAIN_BATCH);
  return state.batch_loss.at("total");
}

void Trainer::Impl::end() {
  log_final_time();
  fire(Event::FIT_END);
  evaluate_if_due(Event::FIT_END);  // after FIT_END, as in Composer
  state.optimizer->zero_grad(/*set_to_none=*/true);
  if (saver) saver->wait();
}

void Trainer::Impl::evaluate_if_due(Event event) { evaluate_all(due(event)); }

void Trainer::Impl::evaluate_all(const std::vector<EvalRun*>& runs) {
  if (runs.empty()) return;
  const auto started = Stopwatch::Clock::now();
  fire(Event::EVAL_BEFORE_ALL);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!evaluate(*runs[i], runs[i]->feed))
      return postpone({runs.begin() + static_cast<std::ptrdiff_t>(i), runs.end()});
    schedules.observe(state, runs[i]->feed.label());
  }
  fire(Event::EVAL_AFTER_ALL);
  stopwatch.skip(Stopwatch::Clock::now() - started);
}

// False: interrupted, so there are no metrics and no EVAL_END.
bool Trainer::Impl::evaluate(EvalRun& run, Feed& feed) {
  const AsideScope aside(state, feed);
  AsideForward forward(state, aside_plan, feed, &eval_forward);
  state.eval_timestamp = {};
  fire(Event::EVAL_START);
  run.metrics.reset();
  for (feed.seek(0, 0); next_batch_aside(feed, state.eval_timestamp);) {
    fire(Event::EVAL_BATCH_START);
    for (Batch& microbatch : feed.split(state.batch, run.evaluator.device_eval_microbatch_size.value_or(0))) {
      state.batch = std::move(microbatch);
      feed.to_device(state.batch, state.device);
      fire(Event::EVAL_BEFORE_FORWARD);
      forward();
      fire(Event::EVAL_AFTER_FORWARD);
      {
        const AutocastScope autocast(state.precision, state.device);
        run.metrics.update(*state.model, state.batch, state.outputs);
      }
    }
    count_batch_aside(feed, state.eval_timestamp);
    fire(Event::EVAL_BATCH_END);
    if (interrupted()) return false;
  }
  run.metrics.report(state, logger);
  fire(Event::EVAL_END);
  return true;
}

void Trainer::Impl::eval(std::vector<EvalRun>& runs, std::int64_t subset_num_batches) {
  fire(Event::EVAL_STANDALONE_START);
  for (EvalRun& run : runs) {
    Feed feed = subset_num_batches == -1 ? run.feed : run.feed.with_subset(subset_num_batches);
    evaluate(run, feed);
  }
  fire(Event::EVAL_STANDALONE_END);
}

std::vector<Outputs> Trainer::Impl::predict(Feed feed, bool return_outputs) {
  std::vector<Outputs> results;
  const AsideScope aside(state, feed);
  AsideForward forward(state, aside_plan, feed, &Model::forward);
  state.predict_timestamp = {};
  fire(Event::PREDICT_START);
  for (feed.seek(0, 0); next_batch_aside(feed, state.predict_timestamp);) {
    feed.to_device(state.batch, state.device);
    fire(Event::PREDICT_BATCH_START);
    fire(Event::PREDICT_BEFORE_FORWARD);
    forward();
    fire(Event::PREDICT_AFTER_FORWARD);
    if (return_outputs) results.push_back(on_cpu(state.outputs));
    count_batch_aside(feed, state.predict_timestamp);
    fire(Event::PREDICT_BATCH_END);
  }
  fire(Event::PREDICT_END);
  return results;
}

}  // namespace composer

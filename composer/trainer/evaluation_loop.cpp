// When each event of an evaluation or a prediction fires, in the order in which you read it.
#include "composer/trainer/evaluation_loop.h"

#include <utility>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/checkpoints.h"
#include "composer/trainer/events.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/random_streams.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/replicas.h"
#include "composer/trainer/stopping.h"
#include "composer/trainer/training_time.h"
#include "composer/util/autocast.h"

namespace composer {
namespace {

// Copies that depend neither on inference mode nor on the memory of the batch.
Outputs on_cpu(const Outputs& outputs) {
  Outputs copy;
  for (const auto& [name, tensor] : outputs) copy.set(name, tensor.is_cpu() ? tensor.clone() : tensor.cpu());
  return copy;
}

Outputs eval_forward(Model& model, const Batch& batch) { return eval_forward_of(model, batch, nullptr); }

}  // namespace

// The beginning and end of evaluations and predictions: the fit loses no time and no random numbers to them, and all
// ranks measure one model.
class EvaluationLoop::Session {
 public:
  Session(const Needs& needs, std::string_view label, std::int64_t call)
      : weights_in_use_(needs.weights_in_use),
        untimed_(needs.fit ? &*needs.fit : nullptr),
        random_(random_of_evaluation(needs.state, label, call)),
        draws_(random_),
        weights_(weights_in_use_, WeightsUse::EVALUATION) {
    needs.replicas.share_buffers(weights_in_use_);
  }
  void close(Events::Opened& all) {
    all.close();
    weights_in_use_.version();  // if the weights were changed, the values are no longer of the current ones
  }

 private:
  WeightsInUse& weights_in_use_;
  Untimed untimed_;
  OwnRandom random_;
  RandomScope draws_;
  WeightsInUse::Scope weights_;
};

std::vector<EvalRun*> EvaluationLoop::due(Event event) {
  if (!needs_.state.previous_timestamp || needs_.evaluators.runs().empty()) return {};
  IntervalMoment moment = needs_.time.progress().moment_of(event, needs_.state.dataloader_len);
  moment.last = event == Event::FIT_END;
  const std::uint64_t weights = moment.last ? needs_.weights_in_use.version() : 0;
  return needs_.evaluators.due_on_all_ranks(needs_.evaluators.due(event, moment, needs_.state, weights), moment.last,
                                            needs_.ranks);
}

std::vector<EvalRun*> EvaluationLoop::take_due(Event event) {
  const bool interrupted = needs_.stopping.look_for_signal();
  std::vector<EvalRun*> runs = due(event);
  if (interrupted && event == Event::FIT_END) return {};  // the run has not ended
  if (!runs.empty() && !needs_.stopping.pauses())
    needs_.evaluators.mark_due(runs, needs_.state.timestamp.batch, needs_.weights_in_use.version());
  if (interrupted) runs.clear();
  return runs;
}

void EvaluationLoop::run(const std::vector<EvalRun*>& due) {
  if (due.empty()) return;
  Session session(needs_, "", 0);
  Events::Opened all(needs_.events, Event::EVAL_BEFORE_ALL, Event::EVAL_AFTER_ALL);
  for (EvalRun* run : due) {
    if (!evaluate(*run, run->feed, {})) return all.cut_short();
    needs_.evaluators.done(*run);
    if (!needs_.stopping.pauses()) needs_.rates.schedules().observe(needs_.state, run->feed.label());
  }
  session.close(all);
}

void EvaluationLoop::eval(std::vector<EvalRun>& runs, std::int64_t subset_num_batches, bool to_the_end) {
  const std::int64_t call = next_call();
  Session session(needs_, "", call);
  Events::Opened all(needs_.events, Event::EVAL_STANDALONE_START, Event::EVAL_STANDALONE_END);
  for (EvalRun& run : runs) {
    Feed feed = subset_num_batches == -1 ? run.feed : run.feed.with_subset(subset_num_batches);
    const bool judges = needs_.evaluators.judges(run, feed, /*is_cut=*/subset_num_batches != -1, needs_.ranks);
    if (!evaluate(run, feed, {.call = call, .judges = judges, .to_the_end = to_the_end})) break;
  }
  session.close(all);
}

// Returns false if it was interrupted, so that there are no metrics. Values do not compare checkpoints if they are of a
// part of the data, of other data, or of weights that were changed during the evaluation.
bool EvaluationLoop::evaluate(EvalRun& run, Feed& feed, How how) {
  State& state = needs_.state;
  const OwnRandom random = random_of_evaluation(state, feed.label(), how.call);
  const RandomScope draws(random);
  const Flag now(is_evaluating_);
  const EvaluationScope scope(state, feed);
  EvaluationForward forward(state, forward_, feed, &eval_forward);
  state.eval_timestamp = {};
  Events::Opened evaluation(needs_.events, Event::EVAL_START, Event::EVAL_END);
  run.metrics.reset();
  run.microbatch.begin(state.device);
  const std::uint64_t before = needs_.weights_in_use.version();
  for (feed.seek(0, 0); next_batch(feed, state.eval_timestamp);) {
    needs_.events.fire(Event::EVAL_BATCH_START);
    evaluate_batch(run, feed, forward);
    count_batch(feed, state.eval_timestamp);
    needs_.events.fire(Event::EVAL_BATCH_END);
    if (!how.to_the_end && needs_.stopping.look_for_signal()) {
      evaluation.cut_short();
      return false;
    }
  }
  const bool of_one_model = needs_.weights_in_use.version() == before;
  run.metrics.report(state, needs_.logger, /*keep_if_empty=*/false, needs_.ranks.world());
  if (!how.judges || !of_one_model) state.metrics.outdate(feed.label());
  evaluation.close();
  needs_.checkpoints.measured().after_evaluation(needs_.state);
  return true;
}

void EvaluationLoop::evaluate_batch(EvalRun& run, const Feed& feed, EvaluationForward& forward) {
  if (!needs_.ranks.alone() && feed.samples() == 0) return;  // this rank has no sample of a small last batch
  State& state = needs_.state;
  MetricSet::Kept metrics;  // before this part
  const auto use = [&](Batch part) {
    if (run.microbatch.is_auto()) metrics = run.metrics.kept();
    state.batch = std::move(part);
    feed.to_device(state.batch, state.device);
    needs_.events.fire(Event::EVAL_BEFORE_FORWARD);
    {
      const WeightsInUse::Forward passing(needs_.weights_in_use);
      forward();
    }
    needs_.events.fire(Event::EVAL_AFTER_FORWARD);
    const WeightsInUse::Forward measuring(needs_.weights_in_use);  // the model may count in a buffer
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

std::vector<PredictedBatch> EvaluationLoop::predict(Feed feed, bool return_outputs) {
  State& state = needs_.state;
  std::vector<PredictedBatch> results;
  const Flag now(is_predicting_);
  Session session(needs_, "predict", next_call());
  const EvaluationScope scope(state, feed);
  EvaluationForward forward(state, forward_, feed, forward_of);
  state.predict_timestamp = {};
  Events::Opened prediction(needs_.events, Event::PREDICT_START, Event::PREDICT_END);
  for (feed.seek(0, 0); next_batch(feed, state.predict_timestamp);) {
    feed.to_device(state.batch, state.device);
    needs_.events.fire(Event::PREDICT_BATCH_START);
    if (feed.samples() > 0 || needs_.ranks.alone()) {  // a rank may have no sample of a small last batch
      needs_.events.fire(Event::PREDICT_BEFORE_FORWARD);
      {
        const WeightsInUse::Forward passing(needs_.weights_in_use);
        forward();
      }
      needs_.events.fire(Event::PREDICT_AFTER_FORWARD);
      if (return_outputs) results.push_back(predicted(on_cpu(state.outputs), feed.samples(), feed.sample_indices()));
    } else if (return_outputs) {
      results.emplace_back();
    }
    count_batch(feed, state.predict_timestamp);
    needs_.events.fire(Event::PREDICT_BATCH_END);
  }
  session.close(prediction);
  return results;
}

bool EvaluationLoop::next_batch(Feed& feed, const Timestamp& timestamp) {
  if (timestamp.batch == 0) stopwatch_.lap();
  std::optional<Batch> batch = feed.next();
  if (needs_.fit) needs_.fit->source.lose_place_of(feed.loader());
  if (batch)
    needs_.state.batch = std::move(*batch);
  else if (timestamp.batch == 0)
    warn(join(feed.label(), " loader: gave no batch, so there is nothing to measure"));
  return batch.has_value();
}

// Also exchanges signals with other ranks, so that all of them stop after the same batch.
void EvaluationLoop::count_batch(const Feed& feed, Timestamp& timestamp) {
  Ranks::EvalCounts counted{feed.samples(), feed.tokens(), needs_.stopping.pending_signal()};
  if (needs_.ranks.splits()) counted = needs_.ranks.sum(counted);
  timestamp = timestamp.to_next_batch(counted.samples, counted.tokens, stopwatch_.lap());
  if (needs_.ranks.splits()) needs_.stopping.note_signal(counted.signal);
}

std::int64_t EvaluationLoop::next_call() {
  if (std::exchange(batch_of_calls_, needs_.state.timestamp.batch) != needs_.state.timestamp.batch) calls_ = 0;
  return ++calls_;
}

}  // namespace composer

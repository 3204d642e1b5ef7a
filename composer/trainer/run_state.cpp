#include "composer/trainer/run_state.h"

#include <cstdint>
#include <map>

#include <ATen/core/Tensor.h>

#include "composer/checkpoint/ignore_keys.h"
#include "composer/core/engine.h"
#include "composer/core/model_access.h"
#include "composer/core/plugin_state.h"
#include "composer/formats/weights.h"
#include "composer/optim/optimizer_state.h"
#include "composer/step/model_settings.h"
#include "composer/step/train_step.h"
#include "composer/step/weights_in_use.h"
#include "composer/trainer/checkpoints.h"
#include "composer/trainer/evaluations.h"
#include "composer/trainer/fit.h"
#include "composer/trainer/fit_history.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/learning_rates.h"
#include "composer/trainer/process_state.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/required_algorithms.h"
#include "composer/trainer/resumption.h"
#include "composer/trainer/tuning.h"

namespace composer {
namespace {

void visit_values(StateVisitor visit, MetricValues& metrics) {
  for (const std::string& label : visit.names()) {
    StateVisitor inner = visit.scope(label);
    for (const std::string& name : inner.names()) {
      at::Tensor value;
      inner(name, value);
      metrics.set(label, name, value);
    }
  }
}

// For each metric: its value, whether that was measured on the saved weights, and which values are better. Checkpoints
// of earlier versions contain only the value, which then does not count as measured on these weights.
void visit_metrics(StateVisitor& visit, MetricValues& metrics) {
  std::map<std::string, std::map<std::string, at::Tensor>> values;
  std::map<std::string, std::vector<std::string>> current;
  std::map<std::string, std::map<std::string, Better>> directions;
  for (const auto& [label, by_name] : metrics.all())
    for (const auto& [name, reported] : by_name) {
      values[label][name] = reported.value;
      if (reported.is_current) current[label].push_back(name);
      if (reported.better) directions[label][name] = *reported.better;
    }
  if (!visit.is_loading()) {
    visit("metrics", values);
    visit("current_metrics", current);
    return visit("metric_directions", directions);
  }
  current.clear(), directions.clear();
  visit_values(visit.scope("metrics"), metrics);
  if (visit.has("current_metrics")) visit("current_metrics", current);
  if (visit.has("metric_directions")) visit("metric_directions", directions);
  metrics.weights_changed();
  for (const auto& [label, names] : current)
    for (const std::string& name : names)
      if (const at::Tensor* value = metrics.find(label, name)) metrics.set(label, name, at::Tensor(*value));
  for (const auto& [label, by_name] : directions)
    for (const auto& [name, better] : by_name) metrics.declare(label, name, better);
}

// Losses are saved so that a program that prints the loss of the last batch can also do so when nothing was left to
// train.
void visit_losses(StateVisitor& visit, Losses& losses) {
  StateVisitor inner = visit.scope("batch_loss");
  if (!visit.is_loading()) {
    for (auto& [name, value] : losses) inner(name, value);
    return;
  }
  losses.clear();
  for (const std::string& name : inner.names()) {
    at::Tensor value;
    inner(name, value);
    losses.set(name, value);
  }
}

void visit_own_optimizer(StateVisitor& visit, State& state, const TrainStep& step) {
  optim::OwnsState owns;  // empty: this rank has the complete state
  if (OptimizerShards* const shards = step.ranks().optimizer_shards())
    owns = [shards](const at::Tensor& parameter) { return shards->is_own(parameter); };
  visit_optimizer(visit, *state.optimizer, as_module(*state.model), owns);
}

}  // namespace

StateDict RunState::snapshot(bool weights_only) const {
  StateDict all, weights;
  for (const auto& [name, tensor] : state_dict(as_module(*state.model))) weights[name] = tensor.detach();
  if (weights_only) {
    weights_in_use.put(weights, WeightsUse::EXPORT);
  } else {
    StateVisitor visit = StateVisitor::saving(all);
    visit_state(visit);
    all["hyperparameters"] = hyperparameters.now(resumption.hyperparameters_before);
    all["rng"] = process.random.state();
    // They were of other weights.
    if (weights_in_use.version() != resumption.weights) resumption.unrestored.drop({"evaluated"});
    resumption.unrestored.put_into(all);
    weights_in_use.save_handed_out(all);
  }
  all["model"] = std::move(weights);
  weights_in_use.put_trained(all);
  return all;
}

void RunState::load(const StateDict& saved, const std::string& from, StateVisitor::Of of) const {
  name_file_in_errors(from, [&] {
    StateVisitor visit = StateVisitor::loading(saved, "", of);
    visit_state(visit);
  });
  resumption.keep_unrestored(saved);
  if (const StateDict* const random = group_in(saved, "rng"); random && random->empty())
    resumption.unrestored.drop({"rng"});  // excluded by load_ignore_keys
  if (train_step.has_scaler())
    resumption.unrestored.drop({"scaler"});  // it has been loaded
  else
    resumption.unrestored.keep(saved, "scaler");
  if (const StateDict* const before = group_in(saved, "hyperparameters"); before && of == StateVisitor::Of::THIS_RUN)
    resumption.hyperparameters_before = *before;
  if (fit) {
    fit->source.lose_place();
    resumption.restore_random(process.random);  // otherwise when the next fit begins
  }
  fits.forget_unfinished();
  rates.schedules().apply(state);
  rates.leave(state);
}

// Entries that were excluded, when saving or by load_ignore_keys, stay as they are.
void RunState::visit_state(StateVisitor& visit) const {
  const auto is_there = [&](const char* name) { return !visit.is_loading() || visit.has(name); };
  const auto field = [&](const char* name, auto& value) {
    if (is_there(name)) visit(name, value);
  };
  field("timestamp", state.timestamp);
  field("previous_timestamp", state.previous_timestamp);
  field("eval_timestamp", state.eval_timestamp);
  field("predict_timestamp", state.predict_timestamp);
  field("seed", state.seed);
  std::string finished = visit.is_loading() ? "" : Resumption::reason_to_save(state.stop);
  field("stop", finished);
  if (visit.is_of_this_run()) visit("fit", fits.last);  // the fits of another run do not count
  visit_epoch(visit);
  settings.visit_state(visit, as_module(*state.model));
  hyperparameters.visit_state(visit);
  if (is_there("pending_evaluations")) evaluators.visit_pending(visit);
  if (!visit.is_loading()) visit_measured(visit);
  train_step.visit_state(visit);
  rates.schedules().visit_state(visit);
  tuning.visit_state(visit);
  visit_required_algorithms(visit, engine);
  visit_plugins(visit, engine, /*warns=*/ranks.first());  // other ranks lack the loggers of rank 0
  // After the algorithms, which may add the parameters that the optimizer had when it was saved.
  StateDict* const whole = visit.is_loading() ? nullptr : checkpoints.collective().whole_optimizer();
  if (whole) {
    visit("optimizer", *whole);
  } else if (state.optimizer && is_there("optimizer")) {
    StateVisitor inner = visit.scope("optimizer");
    visit_own_optimizer(inner, state, train_step);
  }
  if (visit.is_loading()) {  // for all weights, also those that algorithms return
    weights_in_use.loaded();
    resumption.weights = weights_in_use.version();
    visit_measured(visit);
  }
  // Checkpoints that another run has saved are neither counted nor deleted by this one.
  if (!visit.is_loading())
    checkpoints.visit_state(visit, weights_in_use.version());
  else if (visit.is_of_this_run())
    checkpoints.visit_state(visit, resumption.weights);
}

// How many batches the epoch has in which the run stands, if its loader knows that, and not how many samples it has,
// which are among the hyperparameters.
void RunState::visit_epoch(StateVisitor& visit) const {
  std::optional<std::int64_t> batches = resumption.epoch_batches;
  if (!visit.is_loading() && fit) {
    const Feed& feed = fit->source.feed();
    const bool stands_in = feed && state.timestamp.batch_in_epoch > 0;
    batches = stands_in && !feed.num_samples() ? feed.loader()->num_batches() : std::nullopt;
  }
  visit("epoch_batches", batches);
  if (visit.is_loading()) resumption.epoch_batches = visit.is_of_this_run() ? batches : std::nullopt;
}

// Current metrics and due evaluations belong to the weights that are saved with them.
void RunState::visit_measured(StateVisitor& visit) const {
  const auto is_there = [&](const char* name) { return !visit.is_loading() || visit.has(name); };
  const std::uint64_t weights = visit.is_loading() ? resumption.weights : weights_in_use.version();
  if (is_there("metrics")) visit_metrics(visit, state.metrics);
  if (visit.is_loading()) evaluators.declare_metrics(train_step.metrics(), state);
  if (is_there("batch_loss")) visit_losses(visit, state.batch_loss);
  if (is_there("evaluated")) evaluators.visit_evaluated(visit, weights);
}

StateDict own_optimizer(State& state, const TrainStep& step) {
  StateDict own;
  StateVisitor visit = StateVisitor::saving(own);
  visit_own_optimizer(visit, state, step);
  return own;
}

StateDict own_part(State& state, const TrainStep& step, const Engine& engine,
                   const std::vector<std::string>& ignore_keys) {
  StateDict part;
  StateVisitor visit = StateVisitor::saving(part);
  visit_plugins(visit, engine);
  part["optimizer"] = own_optimizer(state, step);
  saving::leave_out(part, ignore_keys);
  return part;
}

}  // namespace composer

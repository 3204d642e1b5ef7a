// What checkpoints keep of a run beside the weights, by one function for saving and loading.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/ignore_keys.h"
#include "composer/core/error.h"
#include "composer/core/exchange_watcher.h"
#include "composer/core/model_access.h"
#include "composer/core/plugin_state.h"
#include "composer/formats/weights.h"
#include "composer/optim/optimizer_state.h"
#include "composer/trainer/impl.h"
#include "composer/trainer/required_algorithms.h"

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

// Of each metric its value, whether that was measured on the saved weights, and which values are better. Earlier
// versions tell the first alone: then none is taken for one of these weights.
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

// A program that prints the loss of the last batch can do so, too, when there was nothing left to train.
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

}  // namespace

class Trainer::Impl::AsRun final : public Run, public ExchangeWatcher {
 public:
  explicit AsRun(Impl& trainer)
      : trainer_(&trainer), signals_(trainer.signals), grace_period_(trainer.options.grace_period) {}
  void cut() { trainer_ = nullptr; }

  StateDict snapshot(bool weights_only) const override {
    trainer().calls.require_own_weights("state.run->snapshot", trainer().engine);
    trainer().replicas.note_saved();
    return trainer().run_state(weights_only);
  }
  void with_model(WeightsUse use, std::uint64_t seed, const std::function<void(Model& model)>& act) const override {
    State& state = trainer().state;
    const WeightsInUse::Scope weights(trainer().weights_in_use, use);
    const OwnRandom random(state.device, seed);
    const RandomScope drawing(random);
    const at::NoGradGuard no_grad;
    const ModuleModes modes(as_module(*state.model));
    const auto restore = c10::make_scope_exit([&] { modes.restore(); });
    set_training(as_module(*state.model), false);
    const WeightsInUse::Forward passing(trainer().weights_in_use);
    act(*state.model);
  }
  std::uint64_t weights_version() const override { return trainer().weights_in_use.version(); }
  void exchange(const std::function<void()>& apply) override {
    const WeightsInUse::Unchanged trusted(trainer().weights_in_use);
    apply();
  }
  bool interrupted() const override { return trainer_ && trainer_->interrupted(); }
  bool pauses() const override { return trainer_ && trainer_->pauses(); }
  bool is_resumable() const override { return trainer_ && trainer_->checkpoints.is_resumable(); }
  bool begins_again() const override { return trainer_ && trainer_->checkpoints.begins_again(); }
  std::string identity() const override { return trainer_ ? trainer_->checkpoints.identity() : std::string(); }
  std::string claim_checkpoints(const void* by, const char* who, const std::string& folder, const std::string& filename,
                                bool whole) const override {
    return trainer().checkpoints.claim(by, who, folder, filename, whole);
  }
  void load(const LoadOptions& options) override { trainer().load(options, {}); }

  void keep_random() const override { trainer().train_step.keep_random(); }
  void repeat_microbatch(bool backward) const override { trainer().train_step.repeat(backward); }
  std::vector<std::int64_t> sample_indices() const override {
    if (!trainer().fit || trainer().asides.evaluating || trainer().asides.predicting) return {};
    return trainer().train_step.sample_indices(trainer().fit->source.feed());
  }

  // Called by the threads that write, too.
  std::optional<Seconds> time_left() const override {
    const std::optional<Seconds> since = signals_->since();
    return since ? std::optional(grace_period_ - *since) : std::nullopt;
  }

  // After a signal every batch, epoch or iteration is saved as soon as it is counted: there may be no later.
  IntervalMoment moment(Event event) const override {
    IntervalMoment moment = trainer().progress().moment_of(event, trainer().state.dataloader_len);
    moment.last = interrupted();
    return moment;
  }

 private:
  Impl& trainer() const {
    if (!trainer_) throw Error("state.run: the trainer of this state is closed, so there is no run to save or to load");
    return *trainer_;
  }

  Impl* trainer_;
  std::shared_ptr<const SignalWatch> signals_;
  Seconds grace_period_;
};

Trainer::Impl::RunLink::RunLink(Impl& trainer) : run_(std::make_shared<AsRun>(trainer)), signals_(trainer.signals) {
  trainer.state.run = std::shared_ptr<Run>(run_);
}

void Trainer::Impl::RunLink::cut() {
  run_->cut();
  signals_->end();
}

void Trainer::Impl::visit_own_optimizer(StateVisitor& visit) {
  optim::OwnsState owns;  // empty: this rank has all
  if (OptimizerShards* const shards = train_step.optimizer_shards())
    owns = [shards](const at::Tensor& parameter) { return shards->is_own(parameter); };
  visit_optimizer(visit, *state.optimizer, as_module(*state.model), owns);
}

StateDict Trainer::Impl::own_optimizer() {
  StateDict own;
  StateVisitor visit = StateVisitor::saving(own);
  visit_own_optimizer(visit);
  return own;
}

// Also what algorithms and callbacks remember, which may differ by rank.
StateDict Trainer::Impl::own_part() {
  StateDict part;
  StateVisitor visit = StateVisitor::saving(part);
  visit_plugins(visit, engine);
  part["optimizer"] = own_optimizer();
  saving::leave_out(part, options.save_ignore_keys);
  return part;
}

// Metrics that are current, and evaluations that were due, are those of the weights that are saved with them.
void Trainer::Impl::visit_measured(StateVisitor& visit) {
  const auto is_there = [&](const char* name) { return !visit.is_loading() || visit.has(name); };
  const std::uint64_t weights = visit.is_loading() ? resumption.weights : weights_in_use.version();
  if (is_there("metrics")) visit_metrics(visit, state.metrics);
  if (visit.is_loading()) declare_metrics();
  if (is_there("batch_loss")) visit_losses(visit, state.batch_loss);
  if (is_there("evaluated")) evaluations.visit_evaluated(visit, weights);
}

// What has been left out, when it was saved or by load_ignore_keys, stays as it is.
void Trainer::Impl::visit_state(StateVisitor& visit) {
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
  if (visit.is_of_this_run()) visit("fit", fits.place);  // another run's fits are not ours
  settings.visit_state(visit, as_module(*state.model));
  hyperparameters.visit_state(visit);
  if (is_there("pending_evaluations")) evaluations.visit_pending(visit);
  if (!visit.is_loading()) visit_measured(visit);
  train_step.visit_state(visit);
  rates.schedules().visit_state(visit);
  tuning.visit_state(visit);
  visit_required_algorithms(visit, engine);
  visit_plugins(visit, engine, /*warns=*/ranks.first());  // the others lack the loggers of rank 0
  // After the algorithms, which may give it the parameters that it had when it was saved.
  StateDict* const whole = visit.is_loading() ? nullptr : checkpoints.whole_optimizer();
  if (whole) {
    visit("optimizer", *whole);
  } else if (state.optimizer && is_there("optimizer")) {
    StateVisitor inner = visit.scope("optimizer");
    visit_own_optimizer(inner);
  }
  if (visit.is_loading()) {  // of all weights, also those that algorithms hand out
    weights_in_use.loaded();
    resumption.weights = weights_in_use.version();
    visit_measured(visit);
  }
  // What another run has saved is not this one's to count and delete.
  if (!visit.is_loading())
    checkpoints.visit_state(visit, weights_in_use.version());
  else if (visit.is_of_this_run())
    checkpoints.visit_state(visit, resumption.weights);
}

// "model" and everything else, with the trained weights; of weights only, "model" as it is exported.
StateDict Trainer::Impl::run_state(bool weights_only) {
  StateDict all, weights;
  for (const auto& [name, tensor] : state_dict(as_module(*state.model))) weights[name] = tensor.detach();
  if (weights_only) {
    weights_in_use.put(weights, WeightsUse::EXPORT);
  } else {
    StateVisitor visit = StateVisitor::saving(all);
    visit_state(visit);
    all["hyperparameters"] = hyperparameters.now(resumption.hyperparameters_before);
    all["rng"] = process.random.state();
    if (weights_in_use.version() != resumption.weights) resumption.waiting.drop({"evaluated"});  // of others
    resumption.waiting.put_into(all);
    weights_in_use.tell_handed_out(all);
  }
  all["model"] = std::move(weights);
  weights_in_use.put_trained(all);
  return all;
}

}  // namespace composer

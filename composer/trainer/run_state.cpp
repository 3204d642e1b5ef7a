// What checkpoints keep of a run beside the weights, by one function for saving and loading.
#include <algorithm>
#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "composer/core/error.h"
#include "composer/core/plugin_state.h"
#include "composer/formats/weights.h"
#include "composer/optim/optimizer_state.h"
#include "composer/trainer/hyperparameters.h"
#include "composer/trainer/impl.h"

namespace composer {
namespace {

std::vector<std::pair<std::string, at::Generator>> generators(at::Device device) {
  std::vector<std::pair<std::string, at::Generator>> all = {{"cpu", at::detail::getDefaultCPUGenerator()}};
  if (!device.is_cpu()) all.emplace_back(device.str(), at::globalContext().defaultGenerator(device));
  return all;
}

StateDict random_state(at::Device device) {
  StateDict state;
  for (auto& [name, generator] : generators(device)) {
    const std::lock_guard lock(generator.mutex());
    state[name] = generator.get_state();
  }
  return state;
}

void restore_random_state(const StateDict& state, at::Device device) {
  for (auto& [name, generator] : generators(device)) {
    const StateValue* saved = state.find(name);
    if (!saved) {
      warn(join("checkpoint: has no random numbers of ", name, ", so they begin anew"));
      continue;
    }
    const std::lock_guard lock(generator.mutex());
    generator.set_state(std::get<at::Tensor>(*saved));
  }
}

void visit_metrics(StateVisitor& visit, MetricValues& metrics) {
  if (!visit.is_loading()) {
    for (const auto& [label, by_name] : metrics.all()) {
      StateVisitor inner = visit.scope(label);
      for (const auto& [name, value] : by_name) {
        at::Tensor tensor = value;
        inner(name, tensor);
      }
    }
    return;
  }
  for (const std::string& label : visit.names()) {
    StateVisitor inner = visit.scope(label);
    for (const std::string& name : inner.names()) {
      at::Tensor value;
      inner(name, value);
      metrics.set(label, name, value);
    }
  }
}

}  // namespace

class Trainer::Impl::AsRun final : public Run {
 public:
  explicit AsRun(Trainer::Impl& trainer) : trainer_(trainer) {}
  StateDict snapshot(bool weights_only) const override { return trainer_.run_state(weights_only); }
  bool interrupted() const override { return trainer_.interrupted(); }
  std::optional<Seconds> time_left() const override { return trainer_.time_left(); }
  void load(const LoadOptions& options) override { trainer_.load(options); }

  IntervalMoment moment(Event event) const override {
    IntervalMoment moment = trainer_.moment_of(event);
    moment.last = event != Event::ITERATION_CHECKPOINT && trainer_.limit_reached();
    return moment;
  }

 private:
  Trainer::Impl& trainer_;
};

std::shared_ptr<Run> Trainer::Impl::as_run() { return std::make_shared<AsRun>(*this); }

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
  std::string stop = visit.is_loading() || !state.stop.asked() ? pending_stop : interrupted() ? "" : state.stop.why();
  field("stop", stop);
  if (visit.is_loading()) pending_stop = stop;
  field("pending_evaluations", pending_evaluations);
  if (state.optimizer && is_there("optimizer")) {
    StateVisitor inner = visit.scope("optimizer");
    visit_optimizer(inner, *state.optimizer, *state.model);
  } else if (resumed && state.optimizer) {
    warn(join(resumed->path.string(), ": has no optimizer, so that one begins anew"));
  }
  if (is_there("metrics")) {
    StateVisitor inner = visit.scope("metrics");
    visit_metrics(inner, state.metrics);
  }
  if (is_there("evaluated")) visit_evaluators(visit);
  train_step.visit_state(visit);
  schedules.visit_state(visit);
  if (options.tune) visit("tuned", tuned);
  visit_required_algorithms(visit, engine);
  visit_plugins(visit, engine);
  // What another run has saved is not this one's to count and delete.
  if (!saver) return;
  StateDict saved;
  if (!visit.is_loading()) {
    saver->save_state(saved);
    visit("saver", saved);
  } else if (resumed && visit.has("saver")) {
    visit("saver", saved);
    saver->load_state(saved, state.timestamp.batch);
  }
}

void Trainer::Impl::visit_evaluators(StateVisitor& visit) {
  std::map<std::string, std::int64_t> evaluated;  // at which batch
  for (const EvalRun& run : evaluators) evaluated[run.feed.label()] = run.last_due_batch;
  visit("evaluated", evaluated);
  for (EvalRun& run : evaluators)
    if (const auto it = evaluated.find(run.feed.label()); it != evaluated.end()) run.last_due_batch = it->second;
}

// "model" and, unless weights only were asked for, everything else.
StateDict Trainer::Impl::run_state(bool weights_only) {
  StateDict all, weights;
  for (const auto& [name, tensor] : state_dict(*state.model)) weights[name] = tensor.detach();
  if (!weights_only) {
    StateVisitor visit = StateVisitor::saving(all);
    visit_state(visit);
    all["hyperparameters"] = hyperparameters_of(options, state, logger, hyperparameters_before);
    all["rng"] = pending_random.empty() ? random_state(state.device) : pending_random;
  }
  all["model"] = std::move(weights);
  return all;
}

void Trainer::Impl::load_weights(const StateDict& saved, const std::string& from, bool strict) {
  const StateValue* found = saved.find("model");
  if (!found) return;
  formats::NamedTensors weights;
  for (const auto& [name, value] : std::get<StateDict>(*found).entries())
    weights.emplace_back(name, std::get<at::Tensor>(value));
  composer::load_weights(*state.model, weights, from, {.strict = strict});
}

void Trainer::Impl::load_run_state(const StateDict& saved) {
  StateVisitor visit = StateVisitor::loading(saved, "");
  visit_state(visit);
  if (const StateValue* random = saved.find("rng")) pending_random = std::get<StateDict>(*random);
  if (const StateValue* before = saved.find("hyperparameters"); before && resumed) {
    hyperparameters_before = std::get<StateDict>(*before);
    warn_of_changes(hyperparameters_before, hyperparameters_of(options, state, logger, {}));
  }
  positioned = false;
  schedules.apply(state);
}

// What can be put back only once training begins: hooks may have drawn random numbers meanwhile.
void Trainer::Impl::resume_fit() {
  resumed.reset();
  if (!pending_random.empty()) restore_random_state(std::exchange(pending_random, StateDict()), state.device);
  const std::vector<std::string> labels = std::exchange(pending_evaluations, {});
  std::vector<EvalRun*> runs;
  for (EvalRun& run : evaluators)
    if (std::ranges::find(labels, run.feed.label()) != labels.end()) runs.push_back(&run);
  evaluate_all(runs);
  if (const std::string why = std::exchange(pending_stop, ""); !why.empty()) state.stop.ask(why);
}

}  // namespace composer

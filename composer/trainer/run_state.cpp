// What checkpoints keep of a run beside the weights, by one function for saving and loading.
#include <algorithm>
#include <map>
#include <mutex>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include "composer/core/error.h"
#include "composer/core/plugin_state.h"
#include "composer/optim/named_optimizer.h"
#include "composer/trainer/impl.h"

namespace composer {
namespace {

// By parameter name. What is missing or of another shape is an error of the optimizer's.
void visit_named(StateVisitor& visit, optim::NamedOptimizer& optimizer) {
  if (!visit.is_loading()) {
    for (auto& [parameter, key, tensor] : optimizer.state_tensors()) {
      StateVisitor inner = visit.scope(parameter);
      inner(key, tensor);
    }
    return;
  }
  std::vector<optim::StateTensor> tensors;
  for (const std::string& parameter : visit.names()) {
    StateVisitor inner = visit.scope(parameter);
    for (const std::string& key : inner.names()) {
      at::Tensor tensor;
      inner(key, tensor);
      tensors.push_back({parameter, key, tensor});
    }
  }
  optimizer.load_state_tensors(tensors);
}

// Of libtorch's own optimizers and of users': as torch::save writes them.
void visit_archive(StateVisitor& visit, torch::optim::Optimizer& optimizer) {
  at::Tensor bytes;
  if (!visit.is_loading()) {
    std::ostringstream text;
    torch::serialize::OutputArchive archive;
    optimizer.save(archive);
    archive.save_to(text);
    const std::string all = std::move(text).str();
    bytes = at::empty({static_cast<std::int64_t>(all.size())}, at::kByte);
    std::copy(all.begin(), all.end(), bytes.mutable_data_ptr<std::uint8_t>());
  }
  visit("archive", bytes);
  if (!visit.is_loading()) return;
  std::istringstream text(
      std::string(reinterpret_cast<const char*>(bytes.const_data_ptr<std::uint8_t>()), bytes.nbytes()));
  torch::serialize::InputArchive archive;
  archive.load_from(text);
  optimizer.load(archive);
}

void visit_optimizer(StateVisitor& visit, torch::optim::Optimizer& optimizer) {
  std::string type = class_name(typeid(optimizer));
  const std::string own = type;
  visit("class", type);
  if (type != own)
    throw CheckpointError("checkpoint: is of a run with the optimizer ", type, ", and this one has ", own);
  StateVisitor state = visit.scope("state");
  if (auto* named = dynamic_cast<optim::NamedOptimizer*>(&optimizer))
    visit_named(state, *named);
  else
    visit_archive(state, optimizer);
}

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

void Trainer::Impl::visit_state(StateVisitor& visit) {
  visit("timestamp", state.timestamp);
  visit("previous_timestamp", state.previous_timestamp);
  visit("eval_timestamp", state.eval_timestamp);
  visit("predict_timestamp", state.predict_timestamp);
  visit("seed", state.seed);
  if (!visit.is_loading()) pending_stop = state.stop.asked() && !interrupted() ? state.stop.why() : "";
  visit("stop", pending_stop);
  visit("pending_evaluations", pending_evaluations);
  if (state.optimizer) {
    StateVisitor inner = visit.scope("optimizer");
    visit_optimizer(inner, *state.optimizer);
  }
  StateVisitor inner = visit.scope("metrics");
  visit_metrics(inner, state.metrics);
  std::map<std::string, std::int64_t> evaluated;  // at which batch
  for (const EvalRun& run : evaluators) evaluated[run.feed.label()] = run.last_due_batch;
  visit("evaluated", evaluated);
  for (EvalRun& run : evaluators)
    if (const auto it = evaluated.find(run.feed.label()); it != evaluated.end()) run.last_due_batch = it->second;
  train_step.visit_state(visit);
  schedules.visit_state(visit);
  if (options.tune) visit("tuned", tuned);
  visit_plugins(visit, engine);
  // What another run has saved is not this one's to count and delete.
  if (saver && (!visit.is_loading() || (resumed && visit.has("saver")))) visit("saver", *saver);
}

// "model" and, unless weights only were asked for, everything else.
StateDict Trainer::Impl::run_state() {
  StateDict all, weights;
  for (const auto& item : state.model->named_parameters()) weights[item.key()] = item.value().detach();
  for (const auto& item : state.model->named_buffers()) weights[item.key()] = item.value().detach();
  if (!options.save_weights_only) {
    StateVisitor visit = StateVisitor::saving(all);
    visit_state(visit);
    all["rng"] = pending_random.empty() ? random_state(state.device) : pending_random;
  }
  all["model"] = std::move(weights);
  return all;
}

void Trainer::Impl::load_weights(const StateDict& saved) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  std::string missing, mismatched, unexpected;
  StateDict left = saved;
  const auto match = [&](const std::string& name, const at::Tensor& own) {
    const StateValue* found = saved.find(name);
    if (!found) {
      missing += "\n  missing in the checkpoint: " + name;
      return;
    }
    const at::Tensor& value = std::get<at::Tensor>(*found);
    if (value.sizes() != own.sizes())
      mismatched +=
          join("\n  of another shape: ", name, " is ", value.sizes(), " there, ", own.sizes(), " in the model");
    copies.emplace_back(own, value);
    left.erase(name);
  };
  for (const auto& item : state.model->named_parameters()) match(item.key(), item.value());
  for (const auto& item : state.model->named_buffers()) match(item.key(), item.value());
  for (const auto& [name, value] : left.entries()) unexpected += "\n  not in the model: " + name;
  const bool strict = options.load_strict_model_weights && (resumed || options.load_ignore_keys.empty());
  if (!mismatched.empty() || (strict && !(missing + unexpected).empty()))
    throw CheckpointError("checkpoint: its weights do not fit the model:", mismatched, missing, unexpected);
  for (auto& [own, value] : copies) own.copy_(value);
}

void Trainer::Impl::load_run_state(const StateDict& saved) {
  StateVisitor visit = StateVisitor::loading(saved, "");
  visit_state(visit);
  if (const StateValue* random = saved.find("rng")) pending_random = std::get<StateDict>(*random);
  last_saved_batch = state.timestamp.batch;
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

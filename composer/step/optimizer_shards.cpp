#include "composer/step/optimizer_shards.h"

#include <string>
#include <variant>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/dist/world.h"
#include "composer/optim/optimizer_state.h"

namespace composer {
namespace {

using StateTensors = std::vector<dist::Sharded::StateTensor>;

bool has_same(const torch::optim::Optimizer& optimizer, const dist::Sharded::Named& parameters) {
  std::size_t i = 0;
  for (const auto& group : optimizer.param_groups())
    for (const at::Tensor& parameter : group.params()) {
      if (i == parameters.size() || !parameter.is_same(parameters[i].second)) return false;
      ++i;
    }
  return i == parameters.size();
}

// libtorch's optimizers count steps in plain numbers. These travel as tensors, under keys that no tensor has.
constexpr std::string_view kInteger = "\x01i", kReal = "\x01r";

void flatten(const std::string& parameter, const StateDict& fields, StateTensors& into) {
  for (const auto& [key, value] : fields.entries()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      if (tensor->defined()) into.push_back({parameter, key, *tensor});
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      into.push_back({parameter, join(kInteger, key), at::scalar_tensor(*integer, at::kLong)});
    } else if (const auto* real = std::get_if<double>(&value)) {
      into.push_back({parameter, join(kReal, key), at::scalar_tensor(*real, at::kDouble)});
    } else {
      throw CheckpointError("checkpoint: the optimizer's state of ", parameter, " has ", key,
                            ", which cannot be sent to another rank");
    }
  }
}

void put(StateDict& fields, const std::string& key, const at::Tensor& tensor) {
  if (key.starts_with(kInteger))
    fields[key.substr(kInteger.size())] = tensor.item<std::int64_t>();
  else if (key.starts_with(kReal))
    fields[key.substr(kReal.size())] = tensor.item<double>();
  else
    fields[key] = tensor;
}

const StateDict& state_in(const StateDict& optimizer) { return std::get<StateDict>(*optimizer.find("state")); }

}  // namespace

OptimizerShards::OptimizerShards(State& state, std::shared_ptr<dist::World> world,
                                 const dist::DistributedOptions& options)
    : state_(state),
      world_(std::move(world)),
      sharded_(world_, {}),
      stage_(options.zero_stage),
      message_bytes_(options.bucket_cap_mb << 20) {}

void OptimizerShards::check_algorithms(const Engine& engine) const {
  if (!divides_gradients()) return;
  for (const auto& algorithm : engine.algorithms()) {
    if (algorithm.object->step_rule())
      throw ConfigError("distributed.zero_stage: 2 does not go with ", algorithm.name,
                        ", which needs the gradients of all parameters on each rank; set zero_stage = 1");
    if (algorithm.events.contains(Event::AFTER_TRAIN_BATCH) && !algorithm.interfaces.divided_gradients)
      throw ConfigError("distributed.zero_stage: 2 leaves each rank the gradients of its own parameters, and ",
                        algorithm.name, " runs at AFTER_TRAIN_BATCH but is not a DividedGradients; set zero_stage = 1");
  }
}

void OptimizerShards::update() {
  if (has_same(*state_.optimizer, sharded_.parameters())) return;
  dist::Sharded::Named parameters;
  for (auto& [name, tensor] : parameters_of(*state_.optimizer, as_module(*state_.model)))
    parameters.emplace_back(std::move(name), std::move(tensor));
  sharded_.set_parameters(std::move(parameters));
  is_checked_ = false;
}

bool OptimizerShards::is_own(const at::Tensor& parameter) {
  update();
  return sharded_.is_own(parameter);
}

bool OptimizerShards::has_changed() {
  update();
  return !is_checked_;
}

void OptimizerShards::check() {
  update();
  sharded_.check();
  is_checked_ = true;
}

void OptimizerShards::reduce_gradients() { changed_ = sharded_.reduce_gradients(message_bytes_); }

void OptimizerShards::before_step() {
  const dist::Sharded::Named& parameters = sharded_.parameters();
  if (stage_ < 2) changed_.assign(parameters.size(), false);
  changed_.resize(parameters.size());
  gradients_.clear();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].second;
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    changed_[i] = true;
    if (!sharded_.is_own(parameter)) gradients_.emplace_back(i, std::exchange(gradient, at::Tensor()));
  }
}

void OptimizerShards::after_step() {
  sharded_.exchange(changed_, message_bytes_);
  for (auto& [index, gradient] : gradients_) sharded_.parameters()[index].second.mutable_grad() = std::move(gradient);
  gradients_.clear();
}

StateDict OptimizerShards::gather(const StateDict& own) {
  check();
  StateTensors tensors;
  for (const auto& [parameter, fields] : state_in(own).entries())
    flatten(parameter, std::get<StateDict>(fields), tensors);
  StateDict states;
  for (const auto& [parameter, key, tensor] : sharded_.gather(tensors)) {
    if (!states.find(parameter)) states[parameter] = StateDict();
    put(std::get<StateDict>(states[parameter]), key, tensor);
  }
  StateDict all;
  if (state_.rank != 0) return all;
  for (const auto& [name, value] : own.entries()) all[name] = name == "state" ? StateValue(std::move(states)) : value;
  return all;
}

}  // namespace composer

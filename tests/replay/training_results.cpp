#include <map>

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "tests/replay/program.h"
#include "tests/replay/training_run.h"

namespace composer::replay {
namespace {

using torch::optim::OptimizerParamState;

template <class State>
bool add_adam_state(Json& to, const std::string& prefix, const OptimizerParamState& state) {
  const auto* adam = dynamic_cast<const State*>(&state);
  if (!adam) return false;
  to[prefix + "step"] = tensor_json(at::scalar_tensor(adam->step(), at::kDouble));
  to[prefix + "exp_avg"] = tensor_json(adam->exp_avg());
  to[prefix + "exp_avg_sq"] = tensor_json(adam->exp_avg_sq());
  if (adam->max_exp_avg_sq().defined()) to[prefix + "max_exp_avg_sq"] = tensor_json(adam->max_exp_avg_sq());
  return true;
}

void add_state(Json& to, const std::string& parameter, const OptimizerParamState& state) {
  const std::string prefix = parameter + ".";
  if (add_adam_state<torch::optim::AdamParamState>(to, prefix, state)) return;
  if (add_adam_state<torch::optim::AdamWParamState>(to, prefix, state)) return;
  const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(&state);
  if (!sgd) throw Unsupported{"state of this optimizer"};
  if (sgd->momentum_buffer().defined()) to[prefix + "momentum_buffer"] = tensor_json(sgd->momentum_buffer());
}

}  // namespace

Json tensor_json(const at::Tensor& tensor) {
  Json values = Json::array();
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().view(-1);
  for (std::int64_t i = 0; i < flat.numel(); ++i) values.push_back(number(flat.const_data_ptr<double>()[i]));
  return {{"shape", tensor.sizes().vec()}, {"values", values}};
}

Json final_json(const Json& config, const Model& model, const torch::optim::Optimizer& optimizer) {
  Json weights = Json::object(), states = Json::object();
  std::map<const void*, std::string> names;
  for (const auto& item : model.named_parameters()) {
    weights[item.key()] = tensor_json(item.value());
    names[item.value().unsafeGetTensorImpl()] = item.key();
  }
  for (const auto& item : model.named_buffers()) weights[item.key()] = tensor_json(item.value());

  Json groups = Json::array();
  for (const auto& group : optimizer.param_groups()) {
    groups.push_back(Json::array());
    for (const at::Tensor& parameter : group.params())
      groups.back().push_back(names.at(parameter.unsafeGetTensorImpl()));
  }
  if (config.value("save_optimizer_state", false))
    for (const auto& [parameter, state] : optimizer.state()) add_state(states, names.at(parameter), *state);

  return {{"final", weights},
          {"optimizer", states},
          {"optimizer_parameters_at_end", groups},
          {"optimizer_class_at_end", class_name(typeid(optimizer))}};
}

}  // namespace composer::replay

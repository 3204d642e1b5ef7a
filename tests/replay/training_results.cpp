#include <map>

#include <ATen/ATen.h>

#include "composer/optim/named_optimizer.h"
#include "tests/replay/program.h"
#include "tests/replay/training_run.h"

namespace composer::replay {

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
    for (const auto& [parameter, key, tensor] : dynamic_cast<const optim::NamedOptimizer&>(optimizer).state_tensors())
      states[parameter + "." + key] = tensor_json(key == "step" ? tensor.to(at::kDouble) : tensor);

  return {{"final", weights},
          {"optimizer", states},
          {"optimizer_parameters_at_end", groups},
          {"optimizer_class_at_end", class_name(typeid(optimizer))}};
}

}  // namespace composer::replay

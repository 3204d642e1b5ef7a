#include "composer/core/model_access.h"

#include <string_view>
#include <typeinfo>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/core/plugins.h"
#include "composer/core/state_dict.h"
#include "composer/util/random.h"

namespace composer {
namespace {

// Gives access to a module's own parameters, which is protected in Module.
struct OwnParameters : torch::nn::Module {
  static const auto& of(const torch::nn::Module& module) { return module.*(&OwnParameters::parameters_); }
};

template <class T>
std::vector<std::pair<std::string, T>> list_of(torch::OrderedDict<std::string, T> items) {
  std::vector<std::pair<std::string, T>> list;
  list.reserve(items.size());
  for (auto& item : items) list.emplace_back(item.key(), std::move(item.value()));
  return list;
}

void collect_tensors(const torch::nn::Module& module, const std::string& prefix, NamedTensorList& into) {
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    if (item.value().defined()) into.emplace_back(prefix + item.key(), item.value());
  for (const auto& item : module.named_buffers(/*recurse=*/false))
    if (item.value().defined()) into.emplace_back(prefix + item.key(), item.value());
  for (const auto& child : module.named_children())
    collect_tensors(*child.value(), join(prefix, child.key(), "."), into);
}

// Called while an error of libtorch is handled. If it is an error about dtypes, throws one that names them.
void explain_types(const Model& model, const Batch& batch, std::string_view error) {
  const auto is_about = [error](std::string_view words) { return error.find(words) != std::string_view::npos; };
  const std::vector<at::Tensor> parameters = model.parameters();
  if (parameters.empty() || (!is_about("dtype") && !is_about("scalar type") && !is_about("type ("))) return;
  const at::ScalarType type = parameters.front().scalar_type();
  std::string inputs;
  for (const auto& [name, tensor] : batch)
    if (tensor.defined() && tensor.scalar_type() != type)
      inputs += join(inputs.empty() ? "" : ", ", '"', name, "\" is ", tensor.scalar_type());
  if (inputs.empty()) return;
  throw_nested<DataError>("of the batch ", inputs, ", and the parameters of the model are ", type,
                          "; inputs of layers must have the type of their parameters: convert them where the data are "
                          "made, or in a transform of DataSpec, with .to(at::k",
                          type, ")");
}

// Called while an error of libtorch is handled. If an output of the model is undefined, throws an error that says so.
void explain_undefined(const Outputs& outputs) {
  for (const auto& [name, tensor] : outputs)
    if (!tensor.defined()) throw_nested<ConfigError>("Model::forward returned an undefined tensor as \"", name, '"');
}

}  // namespace

torch::nn::Module& as_module(Model& model) { return model; }
const torch::nn::Module& as_module(const Model& model) { return model; }

std::vector<at::Tensor> parameters(const torch::nn::Module& module) { return module.parameters(); }
std::vector<at::Tensor> buffers(const torch::nn::Module& module) { return module.buffers(); }
NamedTensorList named_parameters(const torch::nn::Module& module, bool recurse) {
  return list_of(module.named_parameters(recurse));
}
NamedTensorList named_buffers(const torch::nn::Module& module, bool recurse) {
  return list_of(module.named_buffers(recurse));
}

NamedTensorList named_tensors(const torch::nn::Module& module) {
  NamedTensorList tensors;
  collect_tensors(module, "", tensors);
  return tensors;
}

std::vector<ModulePointer> modules_below(const torch::nn::Module& module) {
  return module.modules(/*include_self=*/false);
}

NamedModules named_children(const torch::nn::Module& module) { return list_of(module.named_children()); }
NamedModules named_modules_below(const torch::nn::Module& module) {
  return list_of(module.named_modules("", /*include_self=*/false));
}

std::uint64_t mix_memory(std::uint64_t before, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return before;
  return hash64(before, reinterpret_cast<std::uintptr_t>(tensor.storage().data()), tensor.requires_grad());
}

std::uint64_t mix_module(std::uint64_t before, const torch::nn::Module& module) {
  std::uint64_t mixed = hash64(before, module.is_training());
  for (const auto& parameter : OwnParameters::of(module)) mixed = mix_memory(mixed, parameter.value());
  for (const auto& child : module.children()) mixed = hash64(mixed, reinterpret_cast<std::uintptr_t>(child.get()));
  return mixed;
}

bool is_training(const torch::nn::Module& module) { return module.is_training(); }
void set_training(torch::nn::Module& module, bool on) { module.train(on); }
void move_to(torch::nn::Module& module, at::Device device) { module.to(device); }

ModuleModes::ModuleModes(torch::nn::Module& model) : model_(model), trained_(model.is_training()) {
  for (const auto& module : model.modules(/*include_self=*/false)) modules_.emplace_back(module, module->is_training());
}
ModuleModes::~ModuleModes() = default;

void ModuleModes::restore() const {
  model_.train(trained_);
  for (const auto& [module, trained] : modules_) module->train(trained);
}

Outputs forward_of(Model& model, const Batch& batch) {
  try {
    return model.forward(batch);
  } catch (const c10::Error& error) {
    explain_types(model, batch, error.what_without_backtrace());
    throw;
  }
}
Outputs eval_forward_of(Model& model, const Batch& batch, const Outputs* outputs) {
  return model.eval_forward(batch, outputs);
}
Losses loss_of(Model& model, const Outputs& outputs, const Batch& batch) {
  try {
    return model.loss(outputs, batch);
  } catch (const c10::Error&) {
    explain_undefined(outputs);
    throw;
  }
}
LossWeight loss_weight_of(const Model& model, const Batch& batch) { return model.loss_weight(batch); }
void update_metric(Model& model, const Batch& batch, const Outputs& outputs, Metric& metric) {
  try {
    model.update_metric(batch, outputs, metric);
  } catch (const c10::Error&) {
    explain_undefined(outputs);
    throw;
  }
}
Metrics metrics_of(const Model& model, bool is_train) { return model.get_metrics(is_train); }
std::optional<double> flops_of(const Model& model, const Batch& batch) { return model.flops_per_batch(batch); }
StateDict local_hparams_of(const Model& model) { return model.local_hparams(); }
std::string class_name_of(const Model& model) { return class_name(typeid(model)); }

}  // namespace composer

#pragma once
// Access to a model without its definition, for code that only uses it: composer/core/model.h takes six times as long
// to compile.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "composer/core/loss_weight.h"
#include "composer/core/metric.h"
#include "composer/core/tensors.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace composer {

class Model;
class StateDict;

torch::nn::Module& as_module(Model& model);
const torch::nn::Module& as_module(const Model& model);

// Parameters, buffers or children of a module and of the modules below it, as torch::nn::Module's methods of these
// names return them. Each call makes the names again.
using NamedTensorList = std::vector<std::pair<std::string, at::Tensor>>;
std::vector<at::Tensor> parameters(const torch::nn::Module& module);
std::vector<at::Tensor> buffers(const torch::nn::Module& module);
NamedTensorList named_parameters(const torch::nn::Module& module, bool recurse = true);
NamedTensorList named_buffers(const torch::nn::Module& module, bool recurse = true);
// Parameters and buffers, with the names and the order of Python's state_dict().
NamedTensorList named_tensors(const torch::nn::Module& module);

using ModulePointer = std::shared_ptr<torch::nn::Module>;
std::vector<ModulePointer> modules_below(const torch::nn::Module& module);  // parents first
using NamedModules = std::vector<std::pair<std::string, ModulePointer>>;
NamedModules named_children(const torch::nn::Module& module);
NamedModules named_modules_below(const torch::nn::Module& module);  // parents first
// Returns a hash of `before` and of the module's own properties: its mode, its own parameters' addresses and whether
// they require gradients, and its children. Does not make names.
std::uint64_t mix_module(std::uint64_t before, const torch::nn::Module& module);
// Returns a hash of `before`, the address of a parameter or buffer, and whether it requires gradients.
std::uint64_t mix_memory(std::uint64_t before, const at::Tensor& tensor);

bool is_training(const torch::nn::Module& module);
void set_training(torch::nn::Module& module, bool on);
void move_to(torch::nn::Module& module, at::Device device);

// Which modules of a model are in training mode and which in evaluation mode: parts of it may be frozen by eval().
class ModuleModes {
 public:
  explicit ModuleModes(torch::nn::Module& model);
  ~ModuleModes();
  ModuleModes(const ModuleModes&) = delete;
  ModuleModes& operator=(const ModuleModes&) = delete;
  void restore() const;

 private:
  torch::nn::Module& model_;
  bool trained_;
  std::vector<std::pair<ModulePointer, bool>> modules_;  // parents first
};

// In its scope, a model is in evaluation mode. At its end, its modules have the modes of before.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model) : modes_(model) { set_training(model, false); }
  ~EvaluationMode() { modes_.restore(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  ModuleModes modes_;
};

// Each of these functions calls the model's method.
Outputs forward_of(Model& model, const Batch& batch);
Outputs eval_forward_of(Model& model, const Batch& batch, const Outputs* outputs);
Losses loss_of(Model& model, const Outputs& outputs, const Batch& batch);
LossWeight loss_weight_of(const Model& model, const Batch& batch);
void update_metric(Model& model, const Batch& batch, const Outputs& outputs, Metric& metric);
Metrics metrics_of(const Model& model, bool is_train);
std::optional<double> flops_of(const Model& model, const Batch& batch);
StateDict local_hparams_of(const Model& model);
std::string class_name_of(const Model& model);

}  // namespace composer

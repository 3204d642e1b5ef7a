#include "composer/step/model_settings.h"

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/model_access.h"

namespace composer {
namespace {

std::map<std::string, bool> differing(const std::map<std::string, bool>& before,
                                      const std::map<std::string, bool>& now) {
  std::map<std::string, bool> changes;
  for (const auto& [name, value] : now)
    if (const auto old = before.find(name); old == before.end() || old->second != value) changes[name] = value;
  return changes;
}

// In the order of parents first, because setting a module's mode also sets that of its children.
void set_modes(const std::vector<std::pair<ModulePointer, bool>>& modes) {
  for (const auto& [module, trains] : modes)
    if (is_training(*module) != trains) set_training(*module, trains);
}

}  // namespace

// The model's own train() may freeze further parts.
void train_unfrozen(torch::nn::Module& model) {
  std::vector<std::pair<ModulePointer, bool>> modes;
  if (is_training(model))
    for (const ModulePointer& module : modules_below(model)) modes.emplace_back(module, is_training(*module));
  set_training(model, true);
  for (auto& [module, trains] : modes) trains = trains && is_training(*module);
  set_modes(modes);
}

// While the whole model is in evaluation mode, it is not known which modules are frozen.
ModelSettings::ModelSettings(const torch::nn::Module& model) {
  for (const auto& [name, parameter] : named_parameters(model)) requires_grad_[name] = parameter.requires_grad();
  if (!is_training(model)) return;
  for (const auto& [name, module] : named_modules_below(model)) frozen_[name] = !is_training(*module);
}

ModelSettings ModelSettings::changes(const ModelSettings& now) const {
  ModelSettings all;
  all.requires_grad_ = differing(requires_grad_, now.requires_grad_);
  all.frozen_ = differing(frozen_, now.frozen_);
  return all;
}

void ModelSettings::set_in(torch::nn::Module& model) const {
  for (const auto& [name, parameter] : named_parameters(model))
    if (const auto saved = requires_grad_.find(name); saved != requires_grad_.end())
      parameter.set_requires_grad(saved->second);
  freeze_in(model);
}

void ModelSettings::freeze_in(torch::nn::Module& model) const {
  std::vector<std::pair<ModulePointer, bool>> modes;
  for (const auto& [name, module] : named_modules_below(model)) {
    const auto saved = frozen_.find(name);
    modes.emplace_back(module, saved != frozen_.end() ? !saved->second : is_training(*module));
  }
  set_modes(modes);
}

std::vector<std::string> ModelSettings::lines() const {
  std::vector<std::string> lines;
  for (const auto& [name, requires_grad] : requires_grad_)
    lines.push_back(join("requires_grad of ", name, " = ", requires_grad ? "true" : "false"));
  for (const auto& [name, frozen] : frozen_)
    if (frozen) lines.push_back(join("module in evaluation mode = ", name));
  return lines;
}

void ModelSettings::visit_state(StateVisitor& visit) {
  visit("requires_grad", requires_grad_);
  visit("frozen", frozen_);
}

KeptSettings KeptSettings::of_trial() const {
  KeptSettings trial;
  trial.last_ = last_;
  return trial;
}

ModelSettings KeptSettings::now(const torch::nn::Module& model) const {
  ModelSettings now(model);
  if (!is_training(model)) now.take_frozen(last_);
  return now;
}

void KeptSettings::train(torch::nn::Module& model) const {
  const bool evaluated = !is_training(model);
  train_unfrozen(model);
  if (evaluated) last_.freeze_in(model);
}

void KeptSettings::visit_state(StateVisitor& visit, const torch::nn::Module& model) const {
  ModelSettings set;
  if (!visit.is_loading()) set = made_.changes(now(model));
  if (visit.is_loading() ? visit.has("settings") : !set.empty()) visit("settings", set);
}

}  // namespace composer

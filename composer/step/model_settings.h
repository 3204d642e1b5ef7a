#pragma once
#include <map>
#include <string>
#include <vector>

#include "composer/core/state_dict.h"

namespace torch::nn {
class Module;
}

namespace composer {

// Puts the model into training mode, except modules that are in evaluation mode while the model is not: these were
// frozen on purpose, and stay frozen.
void train_unfrozen(torch::nn::Module& model);

// Which parts of a model are trained: which parameters require gradients, and which modules are frozen, that is in
// evaluation mode while the model as a whole is not.
class ModelSettings {
 public:
  ModelSettings() = default;  // no settings
  explicit ModelSettings(const torch::nn::Module& model);

  // The settings of `now` that are different or missing here.
  ModelSettings changes(const ModelSettings& now) const;
  bool empty() const { return requires_grad_.empty() && frozen_.empty(); }
  void set_in(torch::nn::Module& model) const;  // for the parts that the model has
  // Sets only which modules are frozen.
  void freeze_in(torch::nn::Module& model) const;
  // Replaces the frozen modules. For a model in evaluation mode, where it is not known which modules are frozen.
  void take_frozen(const ModelSettings& before) { frozen_ = before.frozen_; }
  std::vector<std::string> lines() const;  // which parameters require gradients and which modules are frozen, as text
  void visit_state(StateVisitor& visit);

 private:
  using ByName = std::map<std::string, bool>;
  ByName requires_grad_, frozen_;
};

// The settings of a trainer's model: when the trainer was made, and when the last fit began or ended.
class KeptSettings {
 public:
  void begin(const torch::nn::Module& model) { last_ = made_ = ModelSettings(model); }
  void note(const torch::nn::Module& model) { last_ = now(model); }
  KeptSettings of_trial() const;  // without the settings at the making of the trainer

  // The current settings. If the whole model is in evaluation mode, the frozen modules are those noted last.
  ModelSettings now(const torch::nn::Module& model) const;
  // Puts the model into training mode, except for what is frozen. If the program has left the model in evaluation mode,
  // the frozen modules are those noted last.
  void train(torch::nn::Module& model) const;
  // Saves what the program has changed since the trainer was made; a resumed program repeats the rest. Loading only
  // checks the form here; the settings are applied later.
  void visit_state(StateVisitor& visit, const torch::nn::Module& model) const;

 private:
  ModelSettings made_, last_;
};

}  // namespace composer

#pragma once
#include <map>
#include <string>
#include <vector>

#include "composer/core/state_dict.h"

namespace torch::nn {
class Module;
}

namespace composer {

// Puts the model into training mode, but for modules that are in evaluation mode while the model is not: they were
// frozen on purpose, and stay so.
void train_unfrozen(torch::nn::Module& model);

// What of a model is trained: which parameters require gradients, and which modules are frozen in evaluation mode while
// the model as a whole is not.
class ModelSettings {
 public:
  ModelSettings() = default;  // of none
  explicit ModelSettings(const torch::nn::Module& model);

  // What `now` has differently, or what is not here.
  ModelSettings changes(const ModelSettings& now) const;
  bool empty() const { return requires_grad_.empty() && frozen_.empty(); }
  void set_in(torch::nn::Module& model) const;  // what of this the model has
  // Only which modules are frozen; of a model that evaluates as a whole nothing is known of that, but what was before.
  void freeze_in(torch::nn::Module& model) const;
  void take_frozen(const ModelSettings& before) { frozen_ = before.frozen_; }
  std::vector<std::string> lines() const;  // which parameters require gradients and which modules are frozen
  void visit_state(StateVisitor& visit);

 private:
  using ByName = std::map<std::string, bool>;
  ByName requires_grad_, frozen_;
};

// The settings of a trainer's model: when the trainer was made, and when a fit began or ended last.
class KeptSettings {
 public:
  void begin(const torch::nn::Module& model) { last_ = made_ = ModelSettings(model); }
  void note(const torch::nn::Module& model) { last_ = now(model); }
  KeptSettings of_trial() const;  // without those that the trainer was made with

  // A model that evaluates as a whole is frozen where it was before.
  ModelSettings now(const torch::nn::Module& model) const;
  // Puts the model into training mode, but for what is frozen; one that the program has left in evaluation mode is
  // frozen where it was before.
  void train(torch::nn::Module& model) const;
  // What the program has set since the trainer was made; what it had set before, it sets again. What is loaded waits.
  void visit_state(StateVisitor& visit, const torch::nn::Module& model) const;

 private:
  ModelSettings made_, last_;
};

}  // namespace composer

#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/weights_use.h"

namespace torch::nn {
class Module;
}
namespace composer {
class StateVisitor;
}

namespace composer::algorithms {

// Averages of the trainable parameters and of the buffers of a model. Whole numbers, such as counts of batches, are not
// averaged: they take the model's value. Expanded tensors, which cannot be written to, are left out. Nothing here waits
// for a GPU.
class COMPOSER_EXPORT WeightAverages {
 public:
  bool empty() const { return by_name_.empty(); }
  const WeightsByName& by_name() const { return by_name_; }
  WeightsByName& by_name() { return by_name_; }

  void begin(const torch::nn::Module& model);  // starts with the model's values
  // Finds the model's tensors again after loading, and after modules may have been replaced. Averages move to the
  // device of the model; averages whose names it does not have are unchanged.
  void find(const torch::nn::Module& model);
  // Sets averages to (1 - share) * average + share * value.
  void move(const torch::nn::Module& model, double share);
  void put_into(const torch::nn::Module& model);  // copies the averages into the model
  void visit_state(StateVisitor& visit);          // after loading, find() must be called

 private:
  WeightsByName by_name_;
  // Parallel lists, empty until they are needed. The last two are for whole numbers.
  std::vector<at::Tensor> averages_, values_, counts_, counted_;
};

}  // namespace composer::algorithms

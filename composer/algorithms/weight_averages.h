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
// averaged: they become what the model has. Tensors that are expanded, which cannot be written to, are left out.
// Nothing here waits for a GPU.
class COMPOSER_EXPORT WeightAverages {
 public:
  bool empty() const { return by_name_.empty(); }
  const WeightsByName& by_name() const { return by_name_; }
  WeightsByName& by_name() { return by_name_; }

  void begin(const torch::nn::Module& model);  // with what the model has
  // Where the model has its tensors: after loading, and after modules may have been replaced. Averages move to the
  // device of the model; those of names that it does not have stay as they are.
  void find(const torch::nn::Module& model);
  // (1 - share) * average + share * value
  void move(const torch::nn::Module& model, double share);
  void put_into(const torch::nn::Module& model);  // the model gets the averages
  void visit_state(StateVisitor& visit);          // find() comes next

 private:
  WeightsByName by_name_;
  // Beside one another; empty until they are needed. The last two of whole numbers.
  std::vector<at::Tensor> averages_, values_, counts_, counted_;
};

}  // namespace composer::algorithms

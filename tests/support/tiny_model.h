#pragma once
// Models small enough to train in a test.
#include <optional>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/model.h"

namespace composer::test {

// Four numbers in, scores of three classes out; cross entropy with classes or probabilities.
struct TinyModel : Model {
  torch::nn::Linear linear{4, 3};
  std::optional<double> flops;  // of every batch

  TinyModel() { register_module("linear", linear); }
  Outputs forward(const Batch& batch) override { return linear->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  std::optional<double> flops_per_batch(const Batch&) const override { return flops; }
};

}  // namespace composer::test

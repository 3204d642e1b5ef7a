// A program outside of this project: trains models of its own, watched by a callback of its own and changed by
// algorithms of its own, and gets the library's errors by their type.
#include <cmath>
#include <iostream>
#include <memory>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <composer/composer.h>

#include "own_algorithms.h"

struct Line : composer::Model {
  torch::nn::Linear line{1, 1};
  Line() { register_module("line", line); }
  Outputs forward(const Batch& batch) override { return line->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return composer::mean_squared_error(outputs.only(), batch["target"]);
  }
};

struct Count : composer::Callback {
  int batches = 0;
  void batch_end(const composer::State&, composer::Logger&) override { ++batches; }
};

// In a process that has not made a trainer.
bool recomputes() {
  const at::Tensor x = at::full({3}, 2.0).requires_grad_();
  composer::checkpoint([](const at::Tensor& input) { return input * input; }, x).sum().backward();
  return x.grad().equal(at::full({3}, 4.0));
}

int main() {
  if (!recomputes()) return 3;
  check_own_algorithms();
  const at::Tensor x = at::linspace(-1, 1, 64).unsqueeze(1);
  auto model = std::make_shared<Line>();
  auto count = std::make_shared<Count>();
  composer::Trainer trainer({
      .model = model,
      .train_dataloader = composer::data::in_memory({{"input", x}, {"target", 3 * x + 1}}, {.batch_size = 16}),
      .optimizer = composer::optim::sgd({.lr = 0.1}),
      .max_duration = "50ep",
      .callbacks = {count},
  });
  trainer.fit();
  const auto slope = model->line->weight.item<double>(), offset = model->line->bias.item<double>();
  std::cout << "after " << count->batches << " batches: " << slope << " x + " << offset << '\n';
  if (count->batches != 200 || std::abs(slope - 3) > 0.05 || std::abs(offset - 1) > 0.05) return 1;

  try {
    composer::Trainer without_model({});
  } catch (const composer::ConfigError& error) {
    std::cout << "as it should be, an error: " << error.what() << '\n';
    return 0;
  }
  return 2;
}

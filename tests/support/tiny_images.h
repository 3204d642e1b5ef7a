#pragma once
// As tiny.h, with images.
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "tests/support/tiny.h"

namespace composer::test {

// [samples, 1, side, side] in 3 classes, from 0 to 1, always the same.
inline Batch tiny_images(std::int64_t samples, std::int64_t side) {
  const at::Tensor x = at::sin(at::arange(samples * side * side, at::kDouble) * 1.7).add_(1).div_(2).to(at::kFloat);
  return {{"input", x.view({samples, 1, side, side})}, {"target", at::arange(samples, at::kLong).remainder(3)}};
}

// Linear in the means of the four quarters of an image of any size. The same weights every time.
inline std::shared_ptr<Model> tiny_image_model() {
  const torch::nn::Linear linear(4, 3);
  const at::NoGradGuard no_grad;
  linear->weight.copy_(at::cos(at::arange(12, at::kFloat)).view({3, 4}));
  linear->bias.zero_();
  return std::make_shared<models::Classifier>(
      torch::nn::Sequential(torch::nn::AdaptiveAvgPool2d(2), torch::nn::Flatten(), linear),
      models::ClassifierOptions{.num_classes = 3});
}

// As tiny_options(): 16 images of 8x8 in batches of 4, for two epochs.
inline TrainerOptions tiny_image_options() {
  TrainerOptions options = tiny_options();
  options.model = tiny_image_model();
  options.train_dataloader = data::in_memory(tiny_images(16, 8), {.batch_size = 4, .shuffle = false});
  options.max_duration = "2ep";
  options.seed = 7;
  return options;
}

}  // namespace composer::test

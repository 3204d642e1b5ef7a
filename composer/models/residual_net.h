#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace composer::models::detail {

// Two 3x3 convolutions and a shortcut, which is a 1x1 convolution with batch norm where the shape changes.
class BasicBlock : public torch::nn::Module {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Conv2d shortcut_{nullptr};
  torch::nn::BatchNorm2d shortcut_bn_{nullptr};
};

struct ResidualNetOptions {
  std::int64_t num_classes, in_channels;
  std::int64_t width;  // channels of the first stage; each further stage has twice as many and half the size
  std::vector<std::int64_t> blocks;  // number per stage
  bool small_images;                 // start with a 3x3 convolution instead of 7x7 with stride 2 and max-pooling
};

// Modules are named as in torchvision's ResNets: conv1, bn1, layer1, layer2, ..., fc. Initialised by libtorch's
// defaults.
class ResidualNet : public torch::nn::Module {
 public:
  explicit ResidualNet(const ResidualNetOptions& options);
  at::Tensor forward(at::Tensor x);

 private:
  bool small_images_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<std::shared_ptr<BasicBlock>> blocks_;
  torch::nn::Linear fc_;
};

}  // namespace composer::models::detail

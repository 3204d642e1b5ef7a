#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/surgery/layer.h"
#include "composer/surgery/residual_block.h"

namespace composer::models::detail {

// A residual block whose shortcut is a 1x1 convolution with batch norm if the shape changes.
class ShortcutBlock : public ResidualBlock {
 protected:
  void register_shortcut(std::int64_t in, std::int64_t out, std::int64_t stride);

 private:
  at::Tensor shortcut(const at::Tensor& x) override;
  at::Tensor add(at::Tensor branch, const at::Tensor& shortcut) override { return branch.add_(shortcut); }
  at::Tensor finish(at::Tensor sum) override { return sum.relu_(); }

  Layer downsample_;  // null: the shortcut is the input
};

// Two 3x3 convolutions.
class BasicBlock final : public ShortcutBlock {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride);

 private:
  at::Tensor branch(const at::Tensor& x) override;

  Layer conv1_, bn1_, conv2_, bn2_;
};

// A 3x3 convolution of `width` channels between two 1x1 convolutions, the second of which has four times as many
// channels.
class Bottleneck final : public ShortcutBlock {
 public:
  static constexpr std::int64_t kExpansion = 4;
  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride);

 private:
  at::Tensor branch(const at::Tensor& x) override;

  Layer conv1_, bn1_, conv2_, bn2_, conv3_, bn3_;
};

struct ResidualNetOptions {
  std::int64_t num_classes, in_channels;
  std::int64_t width;  // channels of the first stage; each further stage has twice as many and half the size
  std::vector<std::int64_t> blocks;  // number per stage
  bool bottlenecks = false;          // use bottlenecks instead of basic blocks
  bool small_images;                 // start with a 3x3 convolution instead of 7x7 with stride 2 and max-pooling
};

// Modules have the names of torchvision's ResNets: conv1, bn1, layer1, layer2, ..., fc. Initialised by libtorch's
// defaults.
class ResidualNet : public torch::nn::Module {
 public:
  explicit ResidualNet(const ResidualNetOptions& options);
  at::Tensor forward(at::Tensor x);

 private:
  bool small_images_;
  Layer conv1_, bn1_;
  Layer maxpool_;  // null with small_images
  std::vector<Layer> blocks_;
  Layer fc_;
};

}  // namespace composer::models::detail

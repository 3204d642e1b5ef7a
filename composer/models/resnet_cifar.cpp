#include "composer/models/resnet_cifar.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/error.h"

namespace composer::models {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;

Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  return Conv2d(torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

class Block : public torch::nn::Module {
 public:
  Block(std::int64_t in, std::int64_t out, std::int64_t stride)
      : conv1_(convolution(in, out, 3, stride)), bn1_(out), conv2_(convolution(out, out, 3, 1)), bn2_(out) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    register_module("conv2", conv2_);
    register_module("bn2", bn2_);
    if (stride == 1 && in == out) return;
    shortcut_ = convolution(in, out, 1, stride);
    shortcut_bn_ = BatchNorm2d(out);
    register_module("downsample", torch::nn::Sequential(shortcut_, shortcut_bn_));
  }

  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = bn1_->forward(conv1_->forward(x)).relu_();
    y = bn2_->forward(conv2_->forward(y));
    y += shortcut_ ? shortcut_bn_->forward(shortcut_->forward(x)) : x;
    return y.relu_();
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Conv2d shortcut_{nullptr};
  BatchNorm2d shortcut_bn_{nullptr};
};

class ResNetCifar : public torch::nn::Module {
 public:
  explicit ResNetCifar(const ResNetCifarOptions& options)
      : conv1_(convolution(options.in_channels, 16, 3, 1)), bn1_(16), fc_(64, options.num_classes) {
    register_module("conv1", conv1_);
    register_module("bn1", bn1_);
    std::int64_t in = 16;
    for (int stage = 0; stage < 3; ++stage) {
      const std::int64_t out = 16 << stage;
      torch::nn::Sequential layer;
      for (std::int64_t i = 0; i < (options.depth - 2) / 6; ++i) {
        blocks_.push_back(std::make_shared<Block>(in, out, stage > 0 && i == 0 ? 2 : 1));
        layer->push_back(blocks_.back());
        in = out;
      }
      register_module("layer" + std::to_string(stage + 1), layer);
    }
    register_module("fc", fc_);
  }

  at::Tensor forward(at::Tensor x) {
    x = bn1_->forward(conv1_->forward(x)).relu_();
    for (const auto& block : blocks_) x = block->forward(x);
    return fc_->forward(x.mean({2, 3}));
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::Linear fc_;
};

}  // namespace

std::shared_ptr<Classifier> resnet_cifar(ResNetCifarOptions options) {
  const auto [depth, num_classes, in_channels] = options;
  if (depth < 8 || (depth - 2) % 6 != 0)
    throw ConfigError("resnet_cifar: depth must be 6n + 2 (8, 14, 20, 32, 44, 56, 110), got ", depth);
  if (num_classes < 1) throw ConfigError("resnet_cifar: num_classes must be >= 1, got ", num_classes);
  if (in_channels < 1) throw ConfigError("resnet_cifar: in_channels must be >= 1, got ", in_channels);
  return std::make_shared<Classifier>(std::make_shared<ResNetCifar>(options),
                                      ClassifierOptions{.num_classes = num_classes});
}

}  // namespace composer::models

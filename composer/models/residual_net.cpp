#include "composer/models/residual_net.h"

#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>

namespace composer::models::detail {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;

Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  return Conv2d(torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

}  // namespace

BasicBlock::BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
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

at::Tensor BasicBlock::forward(const at::Tensor& x) {
  at::Tensor y = bn1_->forward(conv1_->forward(x)).relu_();
  y = bn2_->forward(conv2_->forward(y));
  y += shortcut_ ? shortcut_bn_->forward(shortcut_->forward(x)) : x;
  return y.relu_();
}

ResidualNet::ResidualNet(const ResidualNetOptions& options)
    : small_images_(options.small_images),
      conv1_(convolution(options.in_channels, options.width, small_images_ ? 3 : 7, small_images_ ? 1 : 2)),
      bn1_(options.width),
      fc_(options.width << (options.blocks.size() - 1), options.num_classes) {
  register_module("conv1", conv1_);
  register_module("bn1", bn1_);
  std::int64_t in = options.width;
  for (std::size_t stage = 0; stage < options.blocks.size(); ++stage) {
    const std::int64_t out = options.width << stage;
    torch::nn::Sequential layer;
    for (std::int64_t i = 0; i < options.blocks[stage]; ++i) {
      blocks_.push_back(std::make_shared<BasicBlock>(in, out, stage > 0 && i == 0 ? 2 : 1));
      layer->push_back(blocks_.back());
      in = out;
    }
    register_module("layer" + std::to_string(stage + 1), layer);
  }
  register_module("fc", fc_);
}

at::Tensor ResidualNet::forward(at::Tensor x) {
  x = bn1_->forward(conv1_->forward(x)).relu_();
  if (!small_images_) x = at::max_pool2d(x, 3, 2, 1);
  for (const auto& block : blocks_) x = block->forward(x);
  return fc_->forward(x.mean({2, 3}));
}

}  // namespace composer::models::detail

#include "composer/models/residual_net.h"

#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

namespace composer::models::detail {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;
using torch::nn::Sequential;

Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  return Conv2d(torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

}  // namespace

void ShortcutBlock::register_shortcut(std::int64_t in, std::int64_t out, std::int64_t stride) {
  if (stride == 1 && in == out) return;
  const Layer convolves(convolution(in, out, 1, stride)), normalises(BatchNorm2d{out});
  downsample_ = Layer(this, "downsample", Sequential(convolves, normalises));
}

at::Tensor ShortcutBlock::shortcut(const at::Tensor& x) { return downsample_ ? downsample_(x) : x; }

BasicBlock::BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride)
    : conv1_(this, "conv1", convolution(in, out, 3, stride)),
      bn1_(this, "bn1", BatchNorm2d(out)),
      conv2_(this, "conv2", convolution(out, out, 3, 1)),
      bn2_(this, "bn2", BatchNorm2d(out)) {
  register_shortcut(in, out, stride);
}

at::Tensor BasicBlock::branch(const at::Tensor& x) { return bn2_(conv2_(bn1_(conv1_(x)).relu_())); }

Bottleneck::Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride)
    : conv1_(this, "conv1", convolution(in, width, 1, 1)),
      bn1_(this, "bn1", BatchNorm2d(width)),
      conv2_(this, "conv2", convolution(width, width, 3, stride)),
      bn2_(this, "bn2", BatchNorm2d(width)),
      conv3_(this, "conv3", convolution(width, kExpansion * width, 1, 1)),
      bn3_(this, "bn3", BatchNorm2d(kExpansion * width)) {
  register_shortcut(in, kExpansion * width, stride);
}

at::Tensor Bottleneck::branch(const at::Tensor& x) {
  return bn3_(conv3_(bn2_(conv2_(bn1_(conv1_(x)).relu_())).relu_()));
}

ResidualNet::ResidualNet(const ResidualNetOptions& options)
    : small_images_(options.small_images),
      conv1_(this, "conv1",
             convolution(options.in_channels, options.width, small_images_ ? 3 : 7, small_images_ ? 1 : 2)),
      bn1_(this, "bn1", BatchNorm2d(options.width)) {
  if (!small_images_)
    maxpool_ = Layer(this, "maxpool", torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
  std::int64_t in = options.width;
  for (std::size_t stage = 0; stage < options.blocks.size(); ++stage) {
    const std::int64_t width = options.width << stage;
    Sequential stage_blocks;
    for (std::int64_t i = 0; i < options.blocks[stage]; ++i) {
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      blocks_.push_back(options.bottlenecks ? Layer(std::make_shared<Bottleneck>(in, width, stride))
                                            : Layer(std::make_shared<BasicBlock>(in, width, stride)));
      stage_blocks->push_back(blocks_.back());
      in = options.bottlenecks ? Bottleneck::kExpansion * width : width;
    }
    register_module("layer" + std::to_string(stage + 1), stage_blocks);
  }
  fc_ = Layer(this, "fc", torch::nn::Linear(in, options.num_classes));
}

at::Tensor ResidualNet::forward(at::Tensor x) {
  x = bn1_(conv1_(x)).relu_();
  if (maxpool_) x = maxpool_(x);
  for (const Layer& block : blocks_) x = block(x);
  return fc_(x.mean({2, 3}));
}

}  // namespace composer::models::detail

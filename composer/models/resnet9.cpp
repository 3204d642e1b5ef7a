#include "composer/models/resnet9.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "composer/core/option.h"
#include "composer/models/ready.h"
#include "composer/models/residual_net.h"

namespace composer::models {
namespace {

class Net final : public torch::nn::Module {
 public:
  explicit Net(const ResNet9Options& options) {
    const std::int64_t width = options.width;
    convolution(options.in_channels, width);
    convolution(width, 2 * width);
    pool();
    add(std::make_shared<detail::BasicBlock>(2 * width, 2 * width, 1));
    convolution(2 * width, 4 * width);
    pool();
    convolution(4 * width, 4 * width);
    pool();
    add(std::make_shared<detail::BasicBlock>(4 * width, 4 * width, 1));
    register_module("body", body_);
    fc_ = Layer(this, "fc", torch::nn::Linear(4 * width, options.num_classes));
  }

  at::Tensor forward(at::Tensor x) {
    for (const Layer& layer : layers_) x = layer(x);
    return fc_(x.mean({2, 3}));
  }

 private:
  void add(const Layer& layer) {
    layers_.push_back(layer);
    body_->push_back(layer);
  }
  void convolution(std::int64_t in, std::int64_t out) {
    constexpr double kMomentum = 0.9;
    add(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false)));
    add(torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(out).momentum(kMomentum)));
    add(torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)));
  }
  void pool() { add(torch::nn::MaxPool2d(2)); }

  torch::nn::Sequential body_;
  std::vector<Layer> layers_;  // the layers of body_, in order
  Layer fc_;
};

std::vector<Option<ResNet9Options>> resnet9_options() {
  using O = ResNet9Options;
  return all_options(option("num_classes", &O::num_classes).at_least(1),
                     option("in_channels", &O::in_channels).at_least(1), option("width", &O::width).at_least(1));
}

}  // namespace

std::shared_ptr<Classifier> resnet9(ResNet9Options options) {
  const auto described = resnet9_options();
  check(options, described, "resnet9: ", "");
  return std::make_shared<Classifier>(
      std::make_shared<Net>(options),
      ClassifierOptions{
          .num_classes = options.num_classes, .hyperparameters = describe(options, described), .ready = "resnet9"});
}

namespace entries {

Entry<ReadyModel> resnet9() {
  return ready_model("resnet9", "A shallow residual net that trains fast", resnet9_options(), models::resnet9);
}

}  // namespace entries

}  // namespace composer::models

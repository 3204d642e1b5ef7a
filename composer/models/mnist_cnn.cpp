#include "composer/models/mnist_cnn.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/option.h"
#include "composer/models/ready.h"
#include "composer/surgery/layer.h"

namespace composer::models {
namespace {

using torch::nn::Conv2d, torch::nn::Conv2dOptions, torch::nn::Dropout, torch::nn::Linear;

class MnistCnn : public torch::nn::Module {
 public:
  explicit MnistCnn(const MnistCnnOptions& options)
      : conv1_(this, "conv1", Conv2d(Conv2dOptions(1, 32, 3))),
        conv2_(this, "conv2", Conv2d(Conv2dOptions(32, 64, 3))),
        dropout1_(this, "dropout1", Dropout(options.dropout1)),
        fc1_(this, "fc1", Linear(64 * 12 * 12, 128)),
        dropout2_(this, "dropout2", Dropout(options.dropout2)),
        fc2_(this, "fc2", Linear(128, options.num_classes)) {}

  at::Tensor forward(at::Tensor x) {
    x = conv1_(x).relu_();
    x = conv2_(x).relu_();
    x = dropout1_(at::max_pool2d(x, 2)).flatten(1);
    return fc2_(dropout2_(fc1_(x).relu_()));
  }

 private:
  Layer conv1_, conv2_, dropout1_, fc1_, dropout2_, fc2_;
};

std::vector<Option<MnistCnnOptions>> mnist_cnn_options() {
  using O = MnistCnnOptions;
  return all_options(option("num_classes", &O::num_classes).at_least(1),
                     option("dropout1", &O::dropout1).from_0_below_1(),
                     option("dropout2", &O::dropout2).from_0_below_1());
}

}  // namespace

std::shared_ptr<Classifier> mnist_cnn(MnistCnnOptions options) {
  const auto described = mnist_cnn_options();
  check(options, described, "mnist_cnn: ", "");
  return std::make_shared<Classifier>(
      std::make_shared<MnistCnn>(options),
      ClassifierOptions{
          .num_classes = options.num_classes, .hyperparameters = describe(options, described), .ready = "mnist_cnn"});
}

namespace entries {

Entry<ReadyModel> mnist_cnn() {
  return ready_model("mnist_cnn", "Two convolutions, for images of 28x28 pixels", mnist_cnn_options(),
                     models::mnist_cnn);
}

}  // namespace entries

}  // namespace composer::models

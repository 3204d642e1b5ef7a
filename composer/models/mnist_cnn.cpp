#include "composer/models/mnist_cnn.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
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

}  // namespace

std::shared_ptr<Classifier> mnist_cnn(MnistCnnOptions options) {
  if (options.num_classes < 1) throw ConfigError("mnist_cnn: num_classes must be >= 1, got ", options.num_classes);
  for (double p : {options.dropout1, options.dropout2})
    if (!(p >= 0 && p < 1)) throw ConfigError("mnist_cnn: dropout1 and dropout2 must be in [0, 1), got ", p);
  return std::make_shared<Classifier>(
      std::make_shared<MnistCnn>(options),
      ClassifierOptions{.num_classes = options.num_classes,
                        .hyperparameters = describe(options, {option("num_classes", &MnistCnnOptions::num_classes),
                                                              option("dropout1", &MnistCnnOptions::dropout1),
                                                              option("dropout2", &MnistCnnOptions::dropout2)})});
}

}  // namespace composer::models

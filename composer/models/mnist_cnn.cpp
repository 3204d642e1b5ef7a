#include "composer/models/mnist_cnn.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"

namespace composer::models {
namespace {

class MnistCnn : public torch::nn::Module {
 public:
  explicit MnistCnn(const MnistCnnOptions& options)
      : options_(options),
        conv1_(torch::nn::Conv2dOptions(1, 32, 3)),
        conv2_(torch::nn::Conv2dOptions(32, 64, 3)),
        fc1_(64 * 12 * 12, 128),
        fc2_(128, options.num_classes) {
    register_module("conv1", conv1_);
    register_module("conv2", conv2_);
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
  }

  at::Tensor forward(at::Tensor x) {
    x = conv1_->forward(x).relu_();
    x = conv2_->forward(x).relu_();
    x = at::dropout(at::max_pool2d(x, 2), options_.dropout1, is_training()).flatten(1);
    x = fc1_->forward(x).relu_();
    return fc2_->forward(at::dropout(x, options_.dropout2, is_training()));
  }

 private:
  MnistCnnOptions options_;
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
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

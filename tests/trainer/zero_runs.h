#pragma once
// Runs in double precision of a network whose parameters can be divided among ranks.
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "tests/trainer/fits_in_ranks.h"

namespace composer::test {

constexpr std::int64_t kHidden = 8;

// Eight parameters, or ten, of which nobody uses two.
struct ZeroNet : torch::nn::Module {
  explicit ZeroNet(bool has_unused) {
    namespace nn = torch::nn;
    net = register_module("net", nn::Sequential(nn::Linear(4, kHidden), nn::Tanh(), nn::Linear(kHidden, kHidden),
                                                nn::Tanh(), nn::Linear(kHidden, kHidden), nn::Tanh()));
    register_module("head", head);
    if (has_unused) register_module("unused", nn::Linear(kHidden, 5));
    const at::NoGradGuard no_grad;
    double phase = 0;
    for (at::Tensor& parameter : parameters())
      parameter.set_data(at::sin(at::arange(parameter.numel(), at::kDouble) + ++phase).view(parameter.sizes()).div_(2));
  }
  at::Tensor forward(const at::Tensor& x) { return head->forward(net->forward(x)); }

  torch::nn::Sequential net{nullptr};
  torch::nn::Linear head{kHidden, 3};
};

inline std::shared_ptr<Model> zero_model(bool has_unused = false) {
  return std::make_shared<models::Classifier>(std::make_shared<ZeroNet>(has_unused),
                                              models::ClassifierOptions{.num_classes = 3, .train_metrics = Metrics()});
}

// 30 samples in batches of 8, 12 batches; the last of an epoch has 6.
inline TrainerOptions zero_options(std::int64_t stage = 0, std::int64_t samples = 30) {
  TrainerOptions options = tiny_options();
  options.model = zero_model();
  Batch data = tiny_data(samples);
  data.set("input", data["input"].to(at::kDouble));
  options.train_dataloader = data::in_memory(data, {.batch_size = 8, .shuffle = true});
  options.optimizer = optim::adamw({.lr = 0.02});
  options.seed = 17;
  options.max_duration = "3ep";
  options.distributed.zero_stage = stage;
  return options;
}

}  // namespace composer::test

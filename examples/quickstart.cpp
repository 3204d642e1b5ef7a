// The README's example: a small network on Fashion-MNIST.
#include <iostream>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <composer/composer.h>

namespace nn = torch::nn;
using namespace composer;

struct Net : Model {
  nn::Sequential net{nn::Flatten(), nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10)};
  Net() { register_module("net", net); }
  Outputs forward(const Batch& batch) override { return net->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return nn::functional::cross_entropy(outputs.only(), batch["target"]);
  }
  Metrics get_metrics(bool) const override { return {metrics::MulticlassAccuracy()}; }
};

int main() try {
  at::manual_seed(1);               // for the initial weights, which are made before the trainer
  const data::FashionMnist images;  // Debian's dataset-fashion-mnist, or a folder of idx files
  const data::Normalize normalize{.mean = {0.286}, .stddev = {0.353}};
  Trainer trainer(TrainerOptions{
      .model = std::make_shared<Net>(),
      .train_dataloader = data::in_memory(images.train, {.batch_size = 128, .normalize = normalize}),
      .eval_dataloader = data::in_memory(images.test, {.batch_size = 500, .shuffle = false, .normalize = normalize}),
      .optimizer = optim::adamw({.lr = 2e-3}),
      .schedulers = {optim::cosine_annealing_with_warmup({.t_warmup = "0.1dur"})},
      .max_duration = "5ep",
      .algorithms = {algorithms::LabelSmoothing({.smoothing = 0.05})},
      .callbacks = {callbacks::EarlyStopper({.monitor = "MulticlassAccuracy", .dataloader_label = "eval"})},
      .loggers = {loggers::ProgressBar()},
      .seed = 1,
  });
  trainer.fit();
  return trainer.interrupted_by() == 0 ? 0 : 128 + trainer.interrupted_by();  // after Ctrl-C the run is not finished
} catch (const std::exception& error) {
  std::cerr << describe(error) << '\n';
  return 1;
}

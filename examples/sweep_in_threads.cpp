// Trains with four learning rates at once: each has its own trainer on its own thread. Each run is bit-identical to the
// same run alone, because each trainer has its own random numbers (docs/reference/several_trainers.md).
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <composer/data/in_memory.h>
#include <composer/models/classifier.h>
#include <composer/trainer/trainer.h>
#include <composer/util/threads_here.h>

namespace nn = torch::nn;
using namespace composer;

// Points of the plane in three classes, by their angle.
Batch spirals(std::int64_t samples) {
  const at::Tensor t = at::linspace(0.1, 1, samples), label = at::arange(samples).remainder(3);
  const at::Tensor angle = t * 6 + label * 2.0944;
  return {{"input", at::stack({t * angle.cos(), t * angle.sin()}, 1)}, {"target", label}};
}

std::unique_ptr<Trainer> trainer_with(double lr) {
  nn::Sequential net(nn::Linear(2, 64), nn::ReLU(), nn::Dropout(0.1), nn::Linear(64, 3));
  return std::make_unique<Trainer>(TrainerOptions{
      .model = std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3}),
      // Each has its own, because a loader has one thread.
      .train_dataloader = data::in_memory(spirals(3000), {.batch_size = 64}),
      .eval_dataloader = data::in_memory(spirals(300), {.batch_size = 300, .shuffle = false}),
      .optimizer = optim::sgd({.lr = lr, .momentum = 0.9}),
      .max_duration = "20ep",
      .seed = 17,
  });
}

int main() {
  const std::vector<double> rates = {0.3, 0.1, 0.03, 0.01};
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const double lr : rates) {  // one after the other, because initial weights come from libtorch's single generator
    at::manual_seed(17);
    trainers.push_back(trainer_with(lr));
  }
  std::vector<std::thread> threads;
  for (const auto& trainer : trainers)
    threads.emplace_back([&trainer] {
      use_threads_here(1);  // the four trainers already share the processor
      trainer->fit();
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < rates.size(); ++i)
    std::printf("lr %.2f: accuracy %.3f\n", rates[i], trainers[i]->state().metrics.at("eval", "MulticlassAccuracy"));
}

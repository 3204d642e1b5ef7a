// Trains in one process, or in as many as a launcher starts:
//   composer launch -n 2 -- build/release/bin/distributed
#include <iostream>

#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <composer/data/in_memory.h>
#include <composer/dist/world.h>
#include <composer/loggers/progress_bar.h>
#include <composer/models/classifier.h>
#include <composer/trainer/trainer.h>

namespace nn = torch::nn;
using namespace composer;

namespace {

// Random points around the centre of their class.
Batch points(std::int64_t samples, std::int64_t classes) {
  at::manual_seed(2);  // the same on all ranks
  const at::Tensor target = at::arange(samples, at::kLong).remainder(classes);
  const at::Tensor centres = at::randn({classes, 32});
  return {{"input", centres.index_select(0, target) + at::randn({samples, 32})}, {"target", target}};
}

TrainerOptions options() {
  constexpr std::int64_t kClasses = 10;
  at::manual_seed(1);
  nn::Sequential net(nn::Linear(32, 128), nn::ReLU(), nn::Linear(128, kClasses));
  TrainerOptions options{
      .model = std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = kClasses})};
  // The batch size of all ranks together.
  options.train_dataloader = data::in_memory(points(20'000, kClasses), {.batch_size = 256});
  options.eval_dataloader = data::in_memory(points(2'000, kClasses), {.batch_size = 500, .shuffle = false});
  options.optimizer = optim::adamw({.lr = 1e-3});
  options.max_duration = "3ep";
  options.loggers = {loggers::ProgressBar()};  // only rank 0 shows it
  options.seed = 17;
  return options;
}

}  // namespace

int main() {
  return dist::run([] {
    Trainer trainer(options());
    trainer.fit();
    const State& state = trainer.state();
    if (state.rank == 0)
      std::cout << "accuracy on " << state.world_size << " ranks: " << state.metrics.at("eval", "MulticlassAccuracy")
                << '\n';
    return trainer.interrupted_by() == 0 ? 0 : 128 + trainer.interrupted_by();
  });
}

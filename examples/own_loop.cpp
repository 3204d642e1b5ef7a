// A training loop of one's own: a policy learns by REINFORCE to walk to a goal. The program plays a round with the
// current weights, trains on it, and plays the next one. A run that is killed at any moment and started again ends with
// the same weights (docs/reference/trainer.md); `composer torture -- own_loop` verifies that.
//
//   own_loop [DURATION]      600ba by default
#include <exception>
#include <iostream>
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <composer/core/callback.h>
#include <composer/core/logger.h>
#include <composer/core/model.h>
#include <composer/core/state.h>
#include <composer/core/state_dict.h>
#include <composer/loggers/json_lines_logger.h>
#include <composer/optim/adam.h>
#include <composer/optim/schedulers.h>
#include <composer/trainer/trainer.h>
#include <composer/util/random.h>

namespace nn = torch::nn;
using namespace composer;

constexpr int kWalkers = 64, kMoves = 20;

struct Policy : Model {
  nn::Sequential net{nn::Linear(2, 32), nn::Tanh(), nn::Linear(32, 2)};
  Policy() { register_module("net", net); }
  Outputs forward(const Batch& batch) override { return net->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    const at::Tensor chosen = at::log_softmax(outputs.only(), 1).gather(1, batch["action"]);
    return -(chosen * batch["advantage"]).mean();
  }
};

// The mean reward of earlier rounds. It changes only within a step, and is stored in checkpoints.
class Baseline : public Callback {
 public:
  void batch_end(const State& state, Logger& logger) override {
    const double reward = state.batch["reward"].mean().item<double>();
    mean_ += 0.05 * (reward - mean_);
    logger.log_metrics({{"walk/reward", reward}});
  }
  void visit_state(StateVisitor& visit) override { visit("mean", mean_); }
  double mean() const { return mean_; }

 private:
  double mean_ = 0;
};

// Plays one round of all walkers. The result depends only on the weights, the baseline, the seed and the number of
// batches.
Batch play(Policy& policy, const Baseline& baseline, const State& state) {
  const at::NoGradGuard no_grad;
  const at::Generator draws = at::make_generator<at::CPUGeneratorImpl>(hash64(state.seed, state.timestamp.batch));
  at::Tensor place = at::rand({kWalkers, 1}, draws);
  const at::Tensor goal = at::rand({kWalkers, 1}, draws);
  std::vector<at::Tensor> inputs, actions, rewards;
  for (int move = 0; move < kMoves; ++move) {
    const at::Tensor input = at::cat({place, goal}, 1);
    const at::Tensor action = at::softmax(policy.net->forward(input), 1).multinomial(1, false, draws);
    const at::Tensor next = place + (action * 2 - 1) * 0.05;
    inputs.push_back(input);
    actions.push_back(action);
    rewards.push_back((place - goal).abs() - (next - goal).abs());
    place = next;
  }
  const at::Tensor reward = at::cat(rewards);
  return {{"input", at::cat(inputs)},
          {"action", at::cat(actions)},
          {"reward", reward},
          {"advantage", reward - baseline.mean()}};
}

int main(int argc, char** argv) try {
  at::manual_seed(1);  // for the initial weights, which are made before the trainer
  const auto policy = std::make_shared<Policy>();
  const auto baseline = std::make_shared<Baseline>();
  Trainer trainer(TrainerOptions{
      .model = policy,
      .optimizer = optim::adam({.lr = 1e-2}),
      .schedulers = {optim::linear()},
      .max_duration = Time::parse(argc > 1 ? argv[1] : "600ba"),
      .callbacks = {baseline},
      .loggers = {loggers::JsonLinesLogger({.path = "walk.jsonl", .overwrite = true})},
      .run_name = "walk",
      .device = at::Device(at::kCPU),
      .seed = 1,
      .save_folder = "checkpoints",
      .save_interval = "50ba",
      .save_num_checkpoints_to_keep = 3,
  });

  trainer.begin();
  while (trainer.step(play(*policy, *baseline, trainer.state()))) {
  }
  trainer.end();

  if (const int signal = trainer.interrupted_by()) return 128 + signal;
  std::cout << "mean reward of a move: " << baseline->mean() << " (at most " << 1.0 / 3 / kMoves << ")\n";
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}

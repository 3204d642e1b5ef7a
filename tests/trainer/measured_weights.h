#pragma once
// What the tests share of values and the weights that they were measured on.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/ema.h"
#include "composer/checkpoint/folder.h"
#include "composer/core/model_access.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::measured_weights {

using MakeAlgorithms = std::function<Algorithms()>;

inline void scale_weights(State& state, double factor) {
  const at::NoGradGuard no_grad;
  for (const at::Tensor& weight : parameters(as_module(*state.model))) weight.mul_(factor);
}

inline Algorithms none() { return {}; }
inline Algorithms ema() { return {algorithms::EMA({.half_life = "1ep"})}; }

// Of two layers, so that LayerFreezing has one to freeze.
inline std::shared_ptr<Model> model(const Metrics& train_metrics = {}, double dropout = 0) {
  at::manual_seed(3);
  torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Dropout(dropout), torch::nn::Linear(4, 3));
  return std::make_shared<models::Classifier>(
      net, models::ClassifierOptions{.num_classes = 3, .train_metrics = train_metrics});
}

// Epochs of 4 batches.
inline TrainerOptions options_of(const MakeAlgorithms& algorithms) {
  TrainerOptions options = tiny_options();
  options.model = model();
  options.optimizer = optim::sgd({.lr = 0.5});
  options.max_duration = "4ep";
  options.eval_dataloader = tiny_loader(7, 4);
  options.algorithms = algorithms();
  options.seed = 1;
  return options;
}

inline std::optional<double> noted(const saving::Found& found, const std::string& metric) {
  const auto value = found.manifest.metrics.find(metric);
  return value == found.manifest.metrics.end() ? std::nullopt : std::optional(value->second);
}

// As such an algorithm is written in Composer.
class Exchanging final : public Algorithm {
 public:
  EventSet events() const override { return {Event::EVAL_START, Event::EVAL_END}; }
  void apply(Event event, State& state, Logger&) override {
    scale_weights(state, event == Event::EVAL_START ? 2 : 0.5);
  }
};

// Of a run that begins with it.
inline double loss_of(const std::filesystem::path& checkpoint, const MakeAlgorithms& algorithms,
                      std::shared_ptr<Loader> data = {}) {
  TrainerOptions options = options_of(algorithms);
  options.run_name = "another";
  options.load_path = checkpoint;
  if (data) options.eval_dataloader = std::move(data);
  Trainer trainer(std::move(options));
  trainer.eval();
  return trainer.state().metrics.at("eval", "CrossEntropy");
}

// Every value of a checkpoint is that of its weights, and the best one has the best of them. Returns how many have one.
inline int check_values(const std::filesystem::path& folder, const std::optional<std::filesystem::path>& best,
                        const MakeAlgorithms& algorithms) {
  int values = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const saving::Found& found : saving::list_checkpoints(folder)) {
    const std::optional<double> value = noted(found, "eval/CrossEntropy");
    if (!value) continue;
    ++values;
    CAPTURE(found.path.filename().string());
    CHECK(loss_of(found.path, algorithms) == doctest::Approx(*value).epsilon(1e-6));
    least = std::min(least, *value);
  }
  CHECK(best.has_value() == (values > 0));
  if (best) CHECK(noted(saving::open_checkpoint(*best), "eval/CrossEntropy") == least);
  return values;
}

}  // namespace composer::test::measured_weights

#pragma once
// The smallest things that a Trainer can train, and a callback that notes what it sees.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "composer/core/callback.h"
#include "composer/core/model.h"
#include "composer/core/state.h"
#include "composer/data/in_memory.h"
#include "composer/models/classifier.h"
#include "composer/trainer/trainer.h"
#include "tests/support/device.h"

namespace composer::test {

// `samples` of x [4] in 3 classes, always the same.
inline Batch tiny_data(std::int64_t samples) {
  const at::Tensor x = at::sin(at::arange(samples * 4, at::kDouble) * 1.7).to(at::kFloat).view({samples, 4});
  return {{"input", x}, {"target", at::arange(samples, at::kLong).remainder(3)}};
}

inline std::shared_ptr<Loader> tiny_loader(std::int64_t samples, std::int64_t batch_size) {
  return data::in_memory(tiny_data(samples), {.batch_size = batch_size, .shuffle = false});
}

// The same weights every time. Without metrics of training unless asked for.
inline std::shared_ptr<Model> tiny_model(bool train_metrics = false) {
  torch::nn::Linear linear(4, 3);
  const at::NoGradGuard no_grad;
  linear->weight.copy_(at::cos(at::arange(12, at::kFloat)).view({3, 4}));
  linear->bias.zero_();
  models::ClassifierOptions options{.num_classes = 3};
  if (!train_metrics) options.train_metrics = Metrics();
  return std::make_shared<models::Classifier>(linear, options);
}

// On device_of_tests(), SGD(lr = 0.1), 16 samples in batches of 4.
inline TrainerOptions tiny_options() {
  TrainerOptions options{.model = tiny_model(), .train_dataloader = tiny_loader(16, 4)};
  options.optimizer = optim::sgd({.lr = 0.1});
  options.max_duration = "1ep";
  options.run_name = "tiny";
  options.device = device_of_tests();
  options.handle_signals = false;
  return options;
}

// Calls a function at every event.
class At final : public Callback {
 public:
  using See = std::function<void(Event, const State&)>;
  explicit At(See see) : see_(std::move(see)) {}
  void run_event(Event event, const State& state, Logger&) override { see_(event, state); }

 private:
  See see_;
};

// Notes the names of all events.
class EventLog final : public Callback {
 public:
  void run_event(Event event, const State&, Logger&) override { names.emplace_back(to_string(event)); }
  std::size_t count(std::string_view name) const { return static_cast<std::size_t>(std::ranges::count(names, name)); }
  std::vector<std::string> names;
};

inline at::Tensor weights_of(Trainer& trainer) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : trainer.state().model->parameters()) all.push_back(parameter.detach().flatten());
  return at::cat(all);
}

// Batch norm has buffers and dropout draws random numbers: both would show that something was trained.
inline std::shared_ptr<Model> model_with_memory() {
  at::manual_seed(5);
  torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::Dropout(0.5), torch::nn::Linear(4, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

}  // namespace composer::test

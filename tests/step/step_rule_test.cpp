// A step rule that takes two passes, as sharpness-aware minimisation does.
#include <functional>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/lbfgs.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/core/error.h"
#include "composer/optim/adam.h"
#include "tests/support/doctest.h"
#include "tests/support/skippable_sgd.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::step_rule_test {
namespace {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

class Sharpness final : public Algorithm, public StepRule {
 public:
  explicit Sharpness(double rho) : rho_(rho) {}
  EventSet events() const override { return {}; }
  void apply(Event, State&, Logger&) override {}
  StepRule* step_rule() override { return this; }
  void make_gradients(State& state, const Pass& pass) override {
    const std::vector<at::Tensor> parameters = state.model->parameters();
    pass(/*counts=*/false);
    const at::NoGradGuard no_grad;
    first_gradients = {};
    for (const at::Tensor& parameter : parameters) first_gradients.push_back(parameter.grad().clone());
    std::vector<at::Tensor> norms;
    for (const at::Tensor& gradient : first_gradients) norms.push_back(gradient.norm());
    const at::Tensor scale = rho_ / (at::stack(norms).norm() + 1e-12);
    const std::vector<at::Tensor> weights = copies_of(parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].addcmul_(first_gradients[i], scale);
    const auto restore = [&] {
      for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(weights[i]);
    };
    try {
      const at::AutoGradMode enable_grad(true);
      pass(/*counts=*/true);
    } catch (...) {
      restore();
      throw;
    }
    restore();
  }
  std::vector<at::Tensor> first_gradients;

 private:
  double rho_;
};

std::shared_ptr<Model> noisy_model() {
  at::manual_seed(5);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Dropout(0.5),
                            torch::nn::Linear(8, 3));
  return std::make_shared<models::Classifier>(net, models::ClassifierOptions{.num_classes = 3});
}

using Change = std::function<void(TrainerOptions&)>;

// Weights, buffers and random numbers that a run leaves, and the events that it fired.
std::pair<std::vector<at::Tensor>, std::vector<std::string>> run(const Change& change,
                                                                 const std::shared_ptr<Algorithm>& rule) {
  TrainerOptions options = tiny_options();
  options.model = noisy_model();
  options.seed = 3;
  change(options);
  if (rule) options.algorithms.add(rule);
  const auto log = std::make_shared<EventLog>();
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.fit();
  std::vector<at::Tensor> left = copies_of(trainer.state().model->parameters());
  for (const at::Tensor& buffer : trainer.state().model->buffers()) left.push_back(buffer.clone());
  left.push_back(trainer.state().batch_loss["total"]);
  left.push_back(at::scalar_tensor(trainer.state().metrics.at("train", "MulticlassAccuracy"), at::kDouble));
  left.push_back(at::rand({3}));
  return {left, log->names};
}

const std::vector<std::pair<const char*, Change>>& setups() {
  static const std::vector<std::pair<const char*, Change>> all{
      {"SGD", [](TrainerOptions&) {}},
      {"AdamW", [](TrainerOptions& o) { o.optimizer = optim::adamw({.lr = 0.01}); }},
      {"microbatches", [](TrainerOptions& o) { o.device_train_microbatch_size = 2; }},
      {"auto", [](TrainerOptions& o) { o.device_train_microbatch_size = "auto"; }},
      {"clipping",
       [](TrainerOptions& o) { o.algorithms = {algorithms::GradientClipping({.clipping_threshold = 0.01})}; }},
      {"bf16", [](TrainerOptions& o) { o.precision = Precision::AMP_BF16; }},
      {"a scaler",
       [](TrainerOptions& o) {
         o.optimizer = skippable_sgd(0.1);
         o.grad_scaler = optim::GradScalerOptions{.init_scale = 1024, .growth_interval = 2};
       }},
      {"L-BFGS", [](TrainerOptions& o) {
         o.optimizer =
             std::make_shared<torch::optim::LBFGS>(o.model->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(3));
       }}};
  return all;
}

TEST_CASE("A pass that does not count leaves no trace: with a radius of 0 the run is the same to the bit") {
  for (const auto& [name, change] : setups()) {
    CAPTURE(name);
    const auto [plain, events] = run(change, nullptr);
    const auto [ours, our_events] = run(change, std::make_shared<Sharpness>(0));
    REQUIRE(plain.size() == ours.size());
    for (std::size_t i = 0; i < plain.size(); ++i) CHECK(plain[i].equal(ours[i]));
    CHECK(events == our_events);
  }
}

TEST_CASE("A radius changes the run, whatever the setup, and all stays finite") {
  for (const auto& [name, change] : setups()) {
    CAPTURE(name);
    const auto plain = run(change, nullptr).first;
    const auto ours = run(change, std::make_shared<Sharpness>(0.1)).first;
    CHECK_FALSE(plain.front().equal(ours.front()));
    for (const at::Tensor& tensor : ours) CHECK(tensor.isfinite().all().item<bool>());
  }
}

TEST_CASE("The pass that does not count gives the gradients of the whole batch, unscaled and unclipped") {
  const auto gradients = [](const Change& change) {
    const auto rule = std::make_shared<Sharpness>(0.1);
    run(
        [&change](TrainerOptions& options) {
          options.model = tiny_model(true);
          options.max_duration = "1ba";
          change(options);
        },
        rule);
    return rule->first_gradients;
  };
  const std::vector<at::Tensor> expected = gradients([](TrainerOptions&) {});
  for (const auto& [name, change] : setups()) {
    if (name == std::string_view("bf16") || name == std::string_view("L-BFGS")) continue;
    CAPTURE(name);
    const std::vector<at::Tensor> ours = gradients(change);
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(at::allclose(ours[i], expected[i], 1e-5, 1e-6));
  }
}

// The mean over targets that are not -100: 0/0 if there are none.
struct MaskedMean : Model {
  Outputs forward(const Batch& batch) override { return fc->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    const at::Tensor counts = batch["target"].ne(-100);
    const at::Tensor each =
        at::cross_entropy_loss(outputs.only(), batch["target"].clamp_min(0), {}, at::Reduction::None);
    return (each * counts).sum() / counts.sum();
  }
  Metrics get_metrics(bool) const override { return {}; }
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(4, 3));
};

TEST_CASE("A microbatch without weight adds nothing to the gradients of a pass that does not count") {
  const auto gradients = [](std::int64_t microbatch_size) {
    at::manual_seed(1);
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<MaskedMean>();
    Batch data = tiny_data(4);
    data.set("target", at::tensor({-100, -100, 1, 2}, at::kLong));
    options.train_dataloader =
        DataSpec{.dataloader = data::in_memory(data, {.batch_size = 4, .shuffle = false}),
                 .get_num_tokens_in_batch = [](const Batch& batch) {
                   return TokenCount(batch["target"].numel(), batch["target"].ne(-100).sum().item<std::int64_t>());
                 }};
    options.accumulate_train_batch_on_tokens = true;
    options.device_train_microbatch_size = microbatch_size;
    const auto rule = std::make_shared<Sharpness>(0.1);
    options.algorithms.add(rule);
    Trainer(std::move(options)).fit();
    return rule->first_gradients;
  };
  const std::vector<at::Tensor> whole = gradients(0), parts = gradients(2);
  REQUIRE(whole.size() == 2);
  for (std::size_t i = 0; i < whole.size(); ++i) CHECK(at::allclose(parts[i], whole[i], 1e-5, 1e-6));
}

struct Wrong final : Algorithm, StepRule {
  explicit Wrong(std::vector<bool> given) : passes(std::move(given)) {}
  EventSet events() const override { return {}; }
  void apply(Event, State&, Logger&) override {}
  StepRule* step_rule() override { return this; }
  void make_gradients(State&, const Pass& pass) override {
    for (const bool counts : passes) pass(counts);
  }
  std::vector<bool> passes;
};

TEST_CASE("A rule that makes no pass that counts, two of them, or another one after it, is told so") {
  for (const auto& [passes, text] :
       {std::pair{std::vector<bool>{false}, "Wrong::make_gradients: no pass that counts"},
        std::pair{std::vector<bool>{true, true}, "Wrong::make_gradients: a pass after the one that counts"},
        std::pair{std::vector<bool>{true, false}, "Wrong::make_gradients: a pass after the one that counts"}}) {
    TrainerOptions options = tiny_options();
    options.algorithms = {Wrong(passes)};
    Trainer trainer(std::move(options));
    CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains(text), RunError);
  }
}

TEST_CASE("Two rules, or one with an optimizer that steps in backward, are refused") {
  TrainerOptions options = tiny_options();
  options.algorithms = {Sharpness(0.1), Wrong({true})};
  CHECK_THROWS_WITH_AS(Trainer(options).fit(),
                       doctest::Contains("Sharpness and Wrong both make the gradients of a step"), RunError);
  options.algorithms = {Sharpness(0.1)};
  options.optimizer = optim::adamw({.lr = 0.1, .step_in_backward = true});
  CHECK_THROWS_WITH_AS(Trainer(options).fit(), doctest::Contains("does not go with Sharpness"), RunError);
}

}  // namespace
}  // namespace composer::test::step_rule_test

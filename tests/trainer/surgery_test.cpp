// Algorithms that replace parts of the model, and whether what they put there trains.
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "composer/core/algorithm.h"
#include "composer/core/error.h"
#include "composer/optim/named_optimizer.h"
#include "composer/optim/schedulers.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/tiny.h"

namespace composer::test::surgery_test {
namespace {

namespace nn = torch::nn;

struct Net : Model {
  Net() { register_module("net", net); }
  Outputs forward(const Batch& batch) override { return net->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  nn::Sequential net{nn::Linear(4, 6), nn::ReLU(), nn::Linear(6, 3)};
};

// Puts another network into the model, once.
class Swap final : public Algorithm {
 public:
  explicit Swap(Event when, bool tells = false) : when_(when), tells_(tells) {}
  EventSet events() const override { return {when_}; }
  void apply(Event, State& state, Logger&) override {
    if (std::exchange(done_, true)) return;
    auto& model = dynamic_cast<Net&>(*state.model);
    const auto before = model.parameters();
    model.net = model.replace_module("net", nn::Sequential(nn::Linear(4, 6), nn::Tanh(), nn::Linear(6, 3)));
    const auto now = model.parameters();
    if (!tells_) return;
    auto& optimizer = dynamic_cast<optim::NamedOptimizer&>(*state.optimizer);
    for (std::size_t i = 0; i < now.size(); ++i) optimizer.replace_parameter(before[i], now[i]);
  }

 private:
  Event when_;
  bool tells_, done_ = false;
};

TrainerOptions options_with(Swap swap) {
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<Net>();
  options.algorithms = {swap};
  return options;
}

std::vector<at::Tensor> copies(Trainer& trainer) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : trainer.state().model->parameters()) all.push_back(parameter.detach().clone());
  return all;
}

void check_all_train(Trainer& trainer) {
  const auto before = copies(trainer);
  trainer.fit();
  const auto after = copies(trainer);
  for (std::size_t i = 0; i < after.size(); ++i) CHECK_FALSE(after[i].equal(before[i]));
}

TEST_CASE("A module that an algorithm replaces at INIT trains") {
  Trainer trainer(options_with(Swap(Event::INIT)));
  CHECK(trainer.state().model->modules(false)[2]->name() == "torch::nn::TanhImpl");
  check_all_train(trainer);
}

TEST_CASE("A module that is replaced later trains if the optimizer is told") {
  for (const Event event : {Event::BEFORE_LOAD, Event::AFTER_LOAD}) {
    CAPTURE(to_string(event));
    Trainer trainer(options_with(Swap(event, /*tells=*/true)));
    check_all_train(trainer);
  }
  Trainer trainer(options_with(Swap(Event::FIT_START, /*tells=*/true)));
  CHECK_NOTHROW(trainer.fit());
}

TEST_CASE("A module that is replaced without telling the optimizer is an error when the fit begins") {
  for (const Event event : {Event::BEFORE_LOAD, Event::AFTER_LOAD, Event::FIT_START}) {
    CAPTURE(to_string(event));
    Trainer trainer(options_with(Swap(event)));
    const std::string text = error_of([&] { trainer.fit(); });
    CAPTURE(text);
    CHECK(text.find("4 of 4 trainable parameters are in no group, among them net.0.weight") != std::string::npos);
    CHECK(text.find("INIT") != std::string::npos);
    CHECK(text.find("replace_parameter") != std::string::npos);
    CHECK(trainer.state().timestamp.batch == 0);
  }
}

TEST_CASE("An optimizer of another model's parameters is refused, and it is said that none is this model's") {
  const auto other = tiny_model();
  TrainerOptions options = tiny_options();
  options.optimizer = std::make_shared<torch::optim::SGD>(other->parameters(), 0.1);
  Trainer trainer(std::move(options));
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("2 of 2 trainable parameters"), ConfigError);
  CHECK_THROWS_WITH_AS(trainer.fit(), doctest::Contains("none of the 2 that it has is in the model"), ConfigError);
}

TEST_CASE("Parameters that are not to be trained may be left out if they require no gradients") {
  const auto model = std::make_shared<Net>();
  const auto part = [&](bool frozen) {
    TrainerOptions options = tiny_options();
    options.model = model;
    for (at::Tensor& parameter : model->net[0]->parameters()) parameter.requires_grad_(!frozen);
    options.optimizer = std::make_shared<torch::optim::SGD>(model->net[2]->parameters(), 0.1);
    return Trainer(std::move(options));
  };
  Trainer frozen = part(true);
  CHECK_NOTHROW(frozen.fit());
  Trainer forgotten = part(false);
  CHECK_THROWS_WITH_AS(forgotten.fit(), doctest::Contains("2 of 4 trainable parameters"), ConfigError);
}

// Gives the optimizer a second group.
class AddGroup final : public Algorithm {
 public:
  explicit AddGroup(Event when) : when_(when) {}
  EventSet events() const override { return {when_}; }
  void apply(Event, State& state, Logger&) override {
    auto& model = dynamic_cast<Net&>(*state.model);
    torch::optim::OptimizerParamGroup group(model.net[2]->parameters(),
                                            std::make_unique<torch::optim::SGDOptions>(0.5));
    state.optimizer->add_param_group(group);
  }

 private:
  Event when_;
};

TEST_CASE("A group that an algorithm adds before the first fit is scheduled") {
  for (const Event event : {Event::INIT, Event::BEFORE_LOAD, Event::AFTER_LOAD}) {
    CAPTURE(to_string(event));
    const auto model = std::make_shared<Net>();
    std::vector<double> rates;
    TrainerOptions options = tiny_options();
    options.model = model;
    options.optimizer = std::make_shared<torch::optim::SGD>(model->net[0]->parameters(), 0.25);
    options.schedulers = {optim::constant({.alpha = 0.5, .t_max = "100ba"})};
    options.algorithms = {AddGroup(event)};
    options.callbacks = {At([&](Event now, const State& state) {
      if (now == Event::BATCH_START) rates = optim::learning_rates(*state.optimizer);
    })};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(rates == std::vector<double>{0.125, 0.25});
  }
}

// Sets a rate after the weights are loaded.
class SetRate final : public Algorithm {
 public:
  EventSet events() const override { return {Event::AFTER_LOAD}; }
  void apply(Event, State& state, Logger&) override { optim::set_learning_rate(*state.optimizer, 0, 0.5); }
};

TEST_CASE("A rate that is set at AFTER_LOAD is the one that schedules multiply") {
  TrainerOptions options = tiny_options();
  options.schedulers = {optim::constant({.alpha = 0.5, .t_max = "100ba"})};
  options.algorithms = {SetRate()};
  Trainer trainer(std::move(options));
  CHECK(optim::learning_rates(*trainer.state().optimizer) == std::vector<double>{0.25});
  trainer.fit();
  CHECK(optim::learning_rates(*trainer.state().optimizer) == std::vector<double>{0.25});
}

}  // namespace
}  // namespace composer::test::surgery_test

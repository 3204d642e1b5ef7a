#include "composer/surgery/surgery_algorithm.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::surgery_algorithm_test {
namespace {

namespace nn = torch::nn;

// Replaces each Linear by one without a bias.
class Unbias final : public SurgeryAlgorithm {
 public:
  Unbias() : SurgeryAlgorithm("Unbias") {}

 private:
  struct Made final : nn::Module {
    explicit Made(const nn::LinearImpl& like)
        : line(register_module("line", nn::Linear(nn::LinearOptions(like.options).bias(false)))) {}
    at::Tensor forward(const at::Tensor& x) { return line->forward(x); }
    nn::Linear line;
  };
  Replacements operate(State& state) const override {
    return replace_modules<Made>(*state.model, [](const std::string&, const Layer& place) -> Layer {
      const auto* line = place->as<nn::LinearImpl>();
      return line ? Layer(std::make_shared<Made>(*line)) : Layer();
    });
  }
  void log(const Replacements& done, Logger& logger) const override {
    logger.log_hyperparameters({{"unbias/layers", static_cast<std::int64_t>(done.made.size())}});
  }
  std::string nothing_found() const override { return "no Linear"; }
};

class Tables final : public LoggerDestination {
 public:
  void log_table(std::string_view key, const LogTable& table, std::int64_t, const State&) override {
    lines.push_back(join(key, ": ", table.rows.size(), " x ", table.columns.size()));
  }
  std::vector<std::string> lines;
};

struct Net final : Model {
  explicit Net(bool calls_another) {
    if (calls_another) other = first->get<nn::Linear>();
  }
  Outputs forward(const Batch& batch) override {
    return other ? other->forward(batch["input"]) : first(batch["input"]);
  }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
  Layer first{this, "first", nn::Linear(4, 3)};
  nn::Linear other = nullptr;
};

TrainerOptions options_of(const std::shared_ptr<Model>& model) {
  TrainerOptions options = tiny_options();
  options.model = model;
  options.max_duration = "6ep";  // 24 batches
  options.algorithms = {Unbias()};
  return options;
}

TEST_CASE("An algorithm that replaces modules does it at INIT, logs a table, and the optimizer gets the new weights") {
  const Warnings warnings;
  const auto model = std::make_shared<Net>(false);
  const auto tables = std::make_shared<Tables>();
  TrainerOptions options = options_of(model);
  options.loggers = {tables};
  Trainer trainer(std::move(options));
  CHECK((tables->lines == std::vector<std::string>{"surgery/Unbias: 1 x 3"}));
  REQUIRE(model->named_parameters().size() == 1);
  const at::Tensor weight = model->named_parameters()["first.line.weight"], before = weight.detach().clone();
  trainer.fit();
  CHECK_FALSE(weight.equal(before));
  CHECK(warnings.texts.empty());
}

TEST_CASE("An algorithm that finds no module to replace warns of it") {
  const Warnings warnings;
  struct Bare final : Model {
    Outputs forward(const Batch& batch) override { return batch["input"].matmul(weight); }
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      return at::cross_entropy_loss(outputs.only(), batch["target"]);
    }
    at::Tensor weight = register_parameter("weight", at::ones({4, 3}));
  };
  Trainer trainer(options_of(std::make_shared<Bare>()));
  CHECK(warnings.say("Unbias: no module was replaced: there is no Linear"));
}

TEST_CASE("A module that is held in a typed member is named, with how to declare it") {
  const Warnings warnings;
  struct Typed final : Model {
    Outputs forward(const Batch& batch) override { return line->forward(batch["input"]); }
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      return at::cross_entropy_loss(outputs.only(), batch["target"]);
    }
    nn::Linear line = register_module("line", nn::Linear(4, 3));
  };
  Trainer trainer(options_of(std::make_shared<Typed>()));
  CHECK(warnings.say("Unbias: could not replace line: declare these modules as composer::Layer"));
}

TEST_CASE("A replaced module that is not called in the first 20 batches is warned of once") {
  const Warnings warnings;
  Trainer trainer(options_of(std::make_shared<Net>(true)));
  trainer.fit();
  CHECK(std::ranges::count_if(warnings.texts, [](const std::string& text) {
          return text.starts_with("Unbias: first of the replaced modules were not called in 20 batches");
        }) == 1);
}

TEST_CASE("A ready optimizer trains the new weights in the group of those before, and has the old ones no more") {
  const auto trained = [](bool ours) {
    at::manual_seed(3);
    const auto model = std::make_shared<Net>(false);
    TrainerOptions options = options_of(model);
    options.seed = 1;
    std::shared_ptr<optim::Optimizer> ready = std::make_shared<torch::optim::SGD>(model->parameters(), 0.1);
    if (ours) ready = optim::sgd({.lr = 0.1}).make(optim::parameters_of(*model));
    options.optimizer = ready;
    Trainer trainer(std::move(options));
    const at::Tensor before = weights_of(trainer);
    trainer.fit();
    CHECK(ready->param_groups().at(0).params().size() == 1);
    const at::Tensor after = weights_of(trainer);
    CHECK_FALSE(after.equal(before));
    return after;
  };
  CHECK(trained(true).allclose(trained(false)));
}

TEST_CASE("A run with a ready optimizer goes on after surgery as if it had not been cut off") {
  check_cut_and_resumed(
      [] {
        at::manual_seed(3);
        const auto model = std::make_shared<Net>(false);
        TrainerOptions options = options_of(model);
        options.seed = 1;
        options.max_duration = "2ep";
        options.optimizer = optim::adam({.lr = 0.1}).make(optim::parameters_of(*model));
        return options;
      },
      5);
}

}  // namespace
}  // namespace composer::test::surgery_algorithm_test

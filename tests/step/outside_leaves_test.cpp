// Trainable tensors that the loss depends on and the model does not have.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "composer/core/model.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::outside_leaves_test {
namespace {

constexpr const char* kText = "trainable tensors that are no parameters of it";

struct Outside final : Model {
  torch::nn::Linear own{4, 3}, extra{3, 1};
  explicit Outside(bool registered) {
    register_module("own", own);
    if (registered) register_module("extra", extra);
  }
  Outputs forward(const Batch& batch) override { return extra->forward(own->forward(batch["input"])); }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().square().mean(); }
};

std::vector<std::string> warnings_of(const TrainerOptions& options, const char* duration = "4ba") {
  Trainer trainer(options);
  const Warnings warnings;
  trainer.fit(Time::parse(duration));
  return warnings.texts;
}

TrainerOptions with(std::shared_ptr<Model> model) {
  TrainerOptions options = tiny_options();
  options.model = std::move(model);
  return options;
}

TEST_CASE("A module that the loss uses and that is not registered is one warning a fit, with its shapes") {
  const std::vector<std::string> texts = warnings_of(with(std::make_shared<Outside>(false)));
  REQUIRE(texts.size() == 1);
  for (const char* part : {kText, "depends on 2 ", "[1, 3]", "[1]", "register_module()"})
    CHECK_MESSAGE(texts.front().find(part) != std::string::npos, texts.front());
  CHECK(warnings_of(with(std::make_shared<Outside>(true))).empty());

  TrainerOptions split = with(std::make_shared<Outside>(false));
  split.device_train_microbatch_size = 2;
  Trainer trainer(std::move(split));
  const Warnings warnings;
  trainer.fit("2ba");
  trainer.fit("2ba");
  CHECK(warnings.texts.size() == 2);
}

TEST_CASE("What another program trains is no warning once it requires no gradients or is in the optimizer") {
  auto frozen = std::make_shared<Outside>(false);
  for (at::Tensor& parameter : frozen->extra->parameters()) parameter.set_requires_grad(false);
  CHECK(warnings_of(with(frozen)).empty());

  auto trained = std::make_shared<Outside>(false);
  TrainerOptions options = with(trained);
  std::vector<at::Tensor> all = trained->own->parameters();
  for (const at::Tensor& parameter : trained->extra->parameters()) all.push_back(parameter);
  options.optimizer = std::make_shared<torch::optim::SGD>(all, torch::optim::SGDOptions(0.1));
  CHECK(warnings_of(options).empty());
}

TEST_CASE("Inputs that require gradients are no warning") {
  struct Penalised final : Model {
    torch::nn::Linear own{4, 3};
    Penalised() { register_module("own", own); }
    Outputs forward(const Batch& batch) override { return own->forward(batch["input"]); }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().square().mean(); }
  };
  TrainerOptions options = with(std::make_shared<Penalised>());
  options.train_dataloader = {};
  Trainer trainer(std::move(options));
  trainer.begin({.duration = "2ba"});
  const Warnings warnings;
  CHECK(trainer.step({{"input", at::ones({2, 4}).set_requires_grad(true)}}));
  CHECK(warnings.texts.empty());
  trainer.end();
}

}  // namespace
}  // namespace composer::test::outside_leaves_test

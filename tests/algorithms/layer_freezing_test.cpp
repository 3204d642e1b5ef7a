#include "composer/algorithms/layer_freezing.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>

#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/load_checkpoint.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/optim/named_optimizer.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::layer_freezing_test {

using algorithms::freeze_layers;
using algorithms::freeze_schedule;
using algorithms::LayerFreezing;

namespace {

namespace nn = torch::nn;

struct Normalised final : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return norm(x).tanh(); }
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(5));
};

nn::Sequential net() {
  at::manual_seed(4);
  return nn::Sequential(nn::Linear(4, 5), Normalised(), nn::Linear(5, 5), nn::Linear(5, 3));
}

TrainerOptions options() {
  TrainerOptions options = test::tiny_options();
  options.model = std::make_shared<models::Classifier>(net(), models::ClassifierOptions{.num_classes = 3});
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  options.max_duration = "4ep";
  options.algorithms = {LayerFreezing({.freeze_start = 0.2})};
  return options;
}

std::size_t trained(const torch::optim::Optimizer& optimizer) {
  std::size_t count = 0;
  for (const auto& group : optimizer.param_groups()) count += group.params().size();
  return count;
}

}  // namespace

TEST_CASE("freeze_schedule grows linearly from freeze_start to freeze_level at the end of the run") {
  CHECK(freeze_schedule(0.4, {}) == 0);
  CHECK(freeze_schedule(0.5, {}) == 0);
  CHECK(freeze_schedule(0.75, {}) == 0.5);
  CHECK(freeze_schedule(1, {}) == 1);
  CHECK(freeze_schedule(0.75, {.freeze_level = 0.8}) == doctest::Approx(0.4));
  CHECK(freeze_schedule(1, {.freeze_start = 1}) == 0);
  // the last batch may overshoot a max_duration in samples
  CHECK(freeze_schedule(1.02, {.freeze_start = 1}) == 0);
  CHECK(freeze_schedule(1.5, {.freeze_level = 0.5}) == 0.5);
}

TEST_CASE("freeze_layers freezes whole layers from the front, never the last, and drops them from the optimizer") {
  for (const bool ours : {true, false}) {
    CAPTURE(ours);
    nn::Sequential model = net();
    std::shared_ptr<torch::optim::Optimizer> optimizer;
    if (ours)
      optimizer = optim::sgd({.lr = 0.1}).make(optim::parameters_of(*model));
    else
      optimizer = std::make_shared<torch::optim::Adam>(model->parameters());
    CHECK(freeze_layers(*model, *optimizer, 0.6).depth == 0);
    CHECK(trained(*optimizer) == 8);
    CHECK(freeze_layers(*model, *optimizer, 0.9).depth == 2);
    CHECK(trained(*optimizer) == 4);
    CHECK_FALSE(model->parameters()[3].requires_grad());
    CHECK(model->parameters()[4].requires_grad());
    CHECK(freeze_layers(*model, *optimizer, 1.5).depth == 3);
    CHECK(trained(*optimizer) == 2);
  }
}

TEST_CASE("An optimizer that has lost its first parameters knows the names of the others") {
  nn::Sequential model = net();
  const auto made = optim::sgd({.lr = 0.1, .momentum = 0.9}).make(optim::parameters_of(*model));
  auto& optimizer = dynamic_cast<optim::NamedOptimizer&>(*made);
  freeze_layers(*model, optimizer, 0.9);
  const auto state = optimizer.state_tensors();
  REQUIRE(state.size() == 4);
  CHECK(state[0].parameter == "2.weight");
  CHECK(state[3].parameter == "3.bias");
  CHECK_THROWS_WITH_AS(optimizer.remove_parameter(model->parameters()[0]), doctest::Contains("remove_parameter()"),
                       ConfigError);
}

TEST_CASE("Parameters that step in backward are trained by their own place after others have left") {
  const auto weights = [](bool in_backward) {
    TrainerOptions with = options();
    with.optimizer = optim::adamw({.lr = 0.01, .step_in_backward = in_backward});
    Trainer trainer(std::move(with));
    trainer.fit();
    return test::weights_of(trainer);
  };
  CHECK(weights(true).equal(weights(false)));
}

TEST_CASE("A weight that a later layer has too stays trained") {
  struct Layer final : nn::Module {
    explicit Layer(const at::Tensor& weight) { register_parameter("weight", weight); }
  };
  struct Tied final : nn::Module {
    explicit Tied(const std::vector<at::Tensor>& weights) {
      for (const at::Tensor& weight : weights)
        register_module(std::to_string(children().size()), std::make_shared<Layer>(weight));
    }
  };
  const at::Tensor shared = at::rand({3}), other = at::rand({3});
  Tied model({shared, other, shared});
  const auto optimizer = optim::sgd({.lr = 0.1}).make(optim::parameters_of(model));
  CHECK(freeze_layers(model, *optimizer, 1).depth == 2);
  CHECK(shared.requires_grad());
  CHECK_FALSE(other.requires_grad());
  CHECK(trained(*optimizer) == 1);
}

TEST_CASE("LayerFreezing leaves frozen weights as they are, has no gradients of them, and logs what it has frozen") {
  TrainerOptions with = options();
  const auto log = std::make_shared<test::RecordingLogger>();
  with.loggers = {log};
  with.algorithms.add(algorithms::GradientClipping({.clipping_threshold = 0.5}));
  std::vector<at::Tensor> first;
  with.callbacks = {test::At([&](Event event, const State& state) {
    if (event == Event::EPOCH_END) first.push_back(state.model->parameters()[0].detach().clone());
  })};
  Trainer trainer(std::move(with));
  trainer.fit();
  REQUIRE(first.size() == 4);
  CHECK_FALSE(first[0].equal(first[1]));
  CHECK(first[2].equal(first[3]));
  CHECK(log->values.at("layer_freezing/layers_frozen") == std::vector<double>{0, 1, 2, 3});
  CHECK(log->values.at("layer_freezing/percentage_frozen").back() == doctest::Approx(1));
  for (std::size_t i = 0; i < 6; ++i) CHECK_FALSE(trainer.state().model->parameters()[i].grad().defined());
}

TEST_CASE("A run with LayerFreezing that is cut and resumed ends as one that is not") {
  for (const std::int64_t batch : {3, 7, 9, 13}) {
    CAPTURE(batch);
    test::check_cut_and_resumed(options, batch);
  }
}

TEST_CASE("A resumed run with LayerFreezing trains the weights that are not frozen") {
  Trainer trainer(options());
  CHECK(trained(*trainer.state().optimizer) == 8);
  for (const at::Tensor& parameter : trainer.state().model->parameters()) CHECK(parameter.requires_grad());
}

TEST_CASE("A trainer that fails to load a checkpoint leaves the weights of its model trainable") {
  TrainerOptions with = options();
  const auto model = std::make_shared<models::Classifier>(net(), models::ClassifierOptions{.num_classes = 3});
  with.model = model;
  with.load_path = "/no/such/folder";
  CHECK_THROWS(Trainer(std::move(with)));
  for (const at::Tensor& parameter : model->parameters()) CHECK(parameter.requires_grad());
}

TEST_CASE("A checkpoint with frozen layers can be loaded by another algorithm, before and after this one") {
  const test::Folder folder;
  TrainerOptions first = options();
  first.save_folder = folder / "ck";
  Trainer saved(std::move(first));
  saved.fit();
  for (const Event event : {Event::BEFORE_LOAD, Event::AFTER_LOAD}) {
    CAPTURE(to_string(event));
    const algorithms::LoadCheckpoint load({.load_path = folder / "ck/latest", .event = event});
    TrainerOptions second = options();
    second.max_duration = "5ep";
    second.algorithms = {load, LayerFreezing({.freeze_start = 0.2})};
    Trainer loaded(std::move(second));
    CHECK(trained(*loaded.state().optimizer) == 2);
    loaded.fit();
    CHECK(loaded.state().timestamp.epoch == 5);
    for (std::size_t i = 0; i < 6; ++i)
      CHECK(loaded.state().model->parameters()[i].equal(saved.state().model->parameters()[i]));
  }
}

TEST_CASE("LayerFreezing refuses a checkpoint with fewer frozen layers before anything of it is loaded") {
  const test::Folder folder;
  TrainerOptions with = options();
  with.save_folder = folder / "ck";
  Trainer trainer(std::move(with));
  trainer.fit();
  const at::Tensor before = test::weights_of(trainer);
  const Timestamp timestamp = trainer.state().timestamp;
  CHECK_THROWS_WITH_AS(trainer.state().run->load({.path = folder / "ck/ep1-ba4"}),
                       doctest::Contains("LayerFreezing: 3 layers are frozen, and 0 were when"), CheckpointError);
  CHECK(test::weights_of(trainer).equal(before));
  CHECK(trainer.state().timestamp == timestamp);
}

TEST_CASE("LayerFreezing begins anew in the next trainer") {
  const auto algorithm = std::make_shared<LayerFreezing>(algorithms::LayerFreezingOptions{.freeze_start = 0.2});
  for (int i = 0; i < 2; ++i) {
    TrainerOptions with = options();
    with.algorithms = {algorithm};
    Trainer trainer(std::move(with));
    CHECK(trained(*trainer.state().optimizer) == 8);
    trainer.fit();
    CHECK(trained(*trainer.state().optimizer) == 2);
  }
}

TEST_CASE("LayerFreezing refuses options that make no sense, with their values") {
  CHECK_THROWS_WITH_AS(LayerFreezing({.freeze_start = 1.5}), "LayerFreezing: freeze_start must be from 0 to 1, got 1.5",
                       ConfigError);
  CHECK_THROWS_WITH_AS(LayerFreezing({.freeze_level = -1}), "LayerFreezing: freeze_level must be from 0 to 1, got -1",
                       ConfigError);
  CHECK_THROWS_AS(LayerFreezing({.freeze_level = NAN}), ConfigError);
}

}  // namespace composer::layer_freezing_test

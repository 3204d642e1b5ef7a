#include "composer/algorithms/freeze_until.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/factorize.h"
#include "composer/core/error.h"
#include "tests/support/at_algorithm.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::freeze_until_test {

using algorithms::FreezeUntil;
using algorithms::FreezeUntilOptions;

namespace {

namespace nn = torch::nn;

// "module.0" and "module.1" are the body, with a batch norm, and "module.2" is the head.
TrainerOptions options(const FreezeUntilOptions& freezing) {
  at::manual_seed(4);
  TrainerOptions options = test::tiny_options();
  options.model =
      std::make_shared<models::Classifier>(nn::Sequential(nn::Linear(4, 5), nn::BatchNorm1d(5), nn::Linear(5, 3)),
                                           models::ClassifierOptions{.num_classes = 3});
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
  options.max_duration = "4ep";
  options.algorithms = {FreezeUntil(freezing)};
  return options;
}

// Copies of the parameters and buffers at the end of each epoch, by name.
using Epochs = std::vector<std::vector<at::Tensor>>;
Epochs trained(TrainerOptions with) {
  Epochs epochs;
  with.callbacks = {test::At([&](Event event, const State& state) {
    if (event != Event::EPOCH_START && event != Event::FIT_END) return;
    epochs.emplace_back();
    for (const at::Tensor& one : state.model->parameters()) epochs.back().push_back(one.detach().clone());
    for (const at::Tensor& one : state.model->buffers()) epochs.back().push_back(one.clone());
  })};
  Trainer trainer(std::move(with));
  trainer.fit();
  return epochs;
}

bool equal(const Epochs& epochs, std::size_t a, std::size_t b, std::size_t tensor) {
  return epochs.at(a).at(tensor).equal(epochs.at(b).at(tensor));
}

constexpr std::size_t kBody = 4, kHead = 6, kAll = 9;  // parameters of body and head; all tensors, with 3 buffers

}  // namespace

TEST_CASE("FreezeUntil keeps what it freezes to the bit, statistics too, and trains all of it from then on") {
  const Epochs epochs = trained(options({.except = {"module.2.*"}, .until = "2ep"}));
  REQUIRE(epochs.size() == 5);
  for (std::size_t i = 0; i < kAll; ++i) {
    CAPTURE(i);
    const bool is_head = i >= kBody && i < kHead;
    CHECK(equal(epochs, 0, 1, i) == !is_head);
    CHECK(equal(epochs, 1, 2, i) == !is_head);
    CHECK_FALSE(equal(epochs, 2, 3, i));
    CHECK_FALSE(equal(epochs, 3, 4, i));
  }
}

TEST_CASE("FreezeUntil without a time freezes for the whole run, and may leave the statistics of batch norms free") {
  const Epochs epochs = trained(options({.parameters = {"module.0.*", "module.1.*"}, .keep_statistics = false}));
  for (std::size_t i = 0; i < kAll; ++i) CHECK(equal(epochs, 0, 4, i) == (i < kBody));
}

TEST_CASE("A body thawed after a share of the run is thawed at that batch") {
  for (const OptionalTime until : {OptionalTime("0.5dur"), OptionalTime("8ba"), OptionalTime("2ep")}) {
    TrainerOptions with = options({.except = {"module.2.*"}, .until = until});
    std::vector<std::int64_t> frozen;
    with.callbacks = {test::At([&](Event event, const State& state) {
      if (event == Event::AFTER_BACKWARD && !state.model->parameters()[0].grad().defined())
        frozen.push_back(state.timestamp.batch);
    })};
    Trainer trainer(std::move(with));
    const std::int64_t batches = *trainer.state().dataloader_len;
    REQUIRE(batches == 4);
    trainer.fit();
    CHECK(frozen == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  }
}

TEST_CASE("What the program had frozen itself stays frozen") {
  TrainerOptions with = options({.except = {"module.2.*"}, .until = "1ep"});
  with.model->parameters()[1].set_requires_grad(false);
  const Epochs epochs = trained(std::move(with));
  CHECK(equal(epochs, 0, 4, 1));
  CHECK_FALSE(equal(epochs, 0, 4, 0));
}

TEST_CASE("A batch norm that the program had put into evaluation mode stays there, also where the model was in it") {
  for (const bool all : {false, true}) {
    CAPTURE(all);
    TrainerOptions with = options({.except = {"module.2.*"}, .until = "1ep"});
    for (const auto& module : with.model->modules())
      if (module->as<nn::BatchNorm1dImpl>()) module->eval();
    if (all) with.model->eval();
    const Epochs epochs = trained(std::move(with));
    for (std::size_t i = kHead; i < kAll; ++i) {
      CHECK(equal(epochs, 0, 1, i));
      CHECK(equal(epochs, 1, 4, i) != all);  // a model that was evaluating as a whole is trained as a whole
    }
  }
}

TEST_CASE("What the program freezes between two fits stays frozen after the thaw") {
  TrainerOptions with = options({.except = {"module.2.*"}, .until = "1ep"});
  with.max_duration = std::nullopt;
  Trainer trainer(std::move(with));
  trainer.fit("2ep");
  const at::Tensor weight = trainer.state().model->parameters()[0];
  CHECK(weight.requires_grad());
  weight.set_requires_grad(false);
  const at::Tensor before = weight.detach().clone();
  trainer.fit("2ep");
  CHECK_FALSE(weight.requires_grad());
  CHECK(weight.equal(before));
}

TEST_CASE("A run in which something was frozen after the thaw, cut and resumed, ends as one that is not") {
  for (const std::int64_t batch : {2, 5, 9, 11}) {
    CAPTURE(batch);
    test::check_cut_and_resumed(
        [] {
          TrainerOptions with = options({.except = {"module.2.*"}, .until = "1ep"});
          with.algorithms.add(test::AtAlgorithm({Event::EPOCH_START}, [](State& state) {
            if (state.timestamp.epoch != 2) return;
            state.model->parameters()[0].set_requires_grad(false);
            for (const auto& module : state.model->modules())
              if (module->as<nn::BatchNorm1dImpl>()) module->eval();
          }));
          return with;
        },
        batch);
  }
}

TEST_CASE("A whole checkpoint of another run, from after its thaw, is trained without what was frozen once") {
  const test::Folder folder;
  {
    TrainerOptions with = options({.except = {"module.2.*"}, .until = "1ep"});
    with.save_folder = folder / "ck";
    Trainer(std::move(with)).fit();
  }
  TrainerOptions with = options({.except = {"module.2.*"}, .until = "1ep"});
  with.load_path = folder / "ck/latest";
  with.max_duration = "6ep";
  const Epochs epochs = trained(std::move(with));
  for (std::size_t i = 0; i < kAll; ++i) CHECK_FALSE(equal(epochs, 0, epochs.size() - 1, i));
}

TEST_CASE("FreezeUntil freezes and thaws the layers that an algorithm after it in the list has made") {
  TrainerOptions with = options({.parameters = {"module.0.*"}, .until = "2ep"});
  with.algorithms.add(algorithms::Factorize({.min_features = 3, .latent_features = 1}));
  const Epochs epochs = trained(std::move(with));
  for (std::size_t i = 0; i < 3; ++i) {  // module0.weight, module1.weight, module1.bias
    CAPTURE(i);
    CHECK(equal(epochs, 0, 2, i));
    CHECK_FALSE(equal(epochs, 2, 4, i));
  }
}

TEST_CASE("A pattern of which another FreezeUntil has taken everything is refused, in this trainer alone") {
  const FreezeUntilOptions body{.parameters = {"module.0.*", "module.1.*"}, .until = "2ep"},
      first{.parameters = {"module.0.*"}, .until = "1ep"};
  TrainerOptions wrong = options(body);
  wrong.algorithms.add(FreezeUntil(first));
  CHECK_THROWS_WITH_AS(Trainer(std::move(wrong)),
                       doctest::Contains("FreezeUntil: parameters: all that \"module.0.*\" fits is frozen by another"),
                       RunError);
  TrainerOptions right = options(first);
  right.algorithms.add(FreezeUntil({.except = {"module.2.*"}, .until = "2ep"}));
  const std::shared_ptr<Model> model = right.model;
  Trainer trainer(std::move(right));
  TrainerOptions again = options(first);
  again.model = model;
  CHECK_NOTHROW(Trainer(std::move(again)));
}

TEST_CASE("A network that thaws part by part, cut and resumed, ends as one that is not") {
  for (const std::int64_t batch : {1, 3, 4, 5, 8, 11}) {
    CAPTURE(batch);
    test::check_cut_and_resumed(
        [] {
          TrainerOptions with = options({.parameters = {"module.1.*"}, .until = "1ep"});
          with.algorithms.add(FreezeUntil({.parameters = {"module.0.*"}, .until = "9ba"}));
          return with;
        },
        batch);
  }
}

TEST_CASE("FreezeUntil names a pattern that fits nothing, and a time that cannot be") {
  CHECK_THROWS_WITH_AS(Trainer(options({.except = {"fc.*"}})),
                       doctest::Contains("FreezeUntil: except: \"fc.*\" fits no parameter of the model; its first one "
                                         "is \"module.0.weight\""),
                       RunError);
  CHECK_THROWS_WITH_AS(FreezeUntil({.until = "0ep"}), doctest::Contains("FreezeUntil: until"), ConfigError);
  CHECK_THROWS_WITH_AS(FreezeUntil({.until = "1iter"}), doctest::Contains("FreezeUntil: until"), ConfigError);
}

}  // namespace composer::freeze_until_test

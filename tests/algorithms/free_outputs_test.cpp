#include "composer/algorithms/free_outputs.h"

#include <optional>

#include "composer/core/on.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::free_outputs_test {

using algorithms::FreeOutputs;

namespace {

// How many users the storage of the outputs has left before the backward pass; 0: it is freed.
struct Uses {
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
  std::size_t left = 99;
  Callbacks watch() {
    return {on(Event::AFTER_FORWARD,
               [this](const State& state) {
                 const c10::Storage& held = state.outputs.front().storage();
                 storage = c10::weak_intrusive_ptr<c10::StorageImpl>(
                     c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(held.unsafeGetStorageImpl()));
               }),
            on(Event::BEFORE_BACKWARD, [this](const State&) { left = storage->use_count(); })};
  }
};

// Its loss needs nothing of the outputs but their shape.
struct SumModel final : Model {
  Outputs forward(const Batch& batch) override { return batch.at("input") * weight; }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.front().sum(); }
  at::Tensor weight = register_parameter("weight", at::ones({4}));
};

}  // namespace

TEST_CASE("FreeOutputs frees the outputs before the backward pass and trains the same weights") {
  std::vector<at::Tensor> weights;
  for (const bool frees : {false, true}) {
    TrainerOptions options = test::tiny_options();
    options.model = std::make_shared<SumModel>();
    Uses uses;
    options.callbacks = uses.watch();
    if (frees) options.algorithms = {FreeOutputs()};
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK((uses.left == 0) == frees);
    weights.push_back(test::weights_of(trainer));
  }
  CHECK(at::equal(weights[0], weights[1]));
}

TEST_CASE("FreeOutputs keeps outputs that metrics of training need, and warns") {
  const test::Warnings warnings;
  TrainerOptions options = test::tiny_options();
  options.model = test::tiny_model(/*train_metrics=*/true);
  options.algorithms = {FreeOutputs()};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(warnings.say("FreeOutputs: the model has metrics of training"));
  CHECK(trainer.state().metrics.at("train", "MulticlassAccuracy") >= 0);
}

}  // namespace composer::free_outputs_test

#include "composer/algorithms/no_op_model.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"

namespace composer::test::no_op_model_test {
namespace {

using algorithms::NoOpModel;

TrainerOptions no_op_options() {
  TrainerOptions with = tiny_options();
  with.max_duration = "2ep";
  with.algorithms = {NoOpModel()};
  return with;
}

TEST_CASE("NoOpModel trains one weight, by which the targets are multiplied, towards 1") {
  TrainerOptions with = no_op_options();
  at::Tensor first;
  with.callbacks.add(At([&](Event event, const State& state) {
    if (event == Event::AFTER_FORWARD && !first.defined()) first = state.outputs.only().clone();
  }));
  Trainer trainer(std::move(with));
  REQUIRE(trainer.state().model->named_parameters().size() == 1);
  CHECK(trainer.state().model->named_parameters()["weights"].item<float>() == 1.5F);
  trainer.fit();
  CHECK(at::allclose(first, at::tensor({0.F, 1.5F, 3.F, 0.F})));
  CHECK(trainer.state().model->named_parameters()["weights"].item<float>() == doctest::Approx(1).epsilon(0.05));
}

TEST_CASE("A run with NoOpModel that is cut off and resumed ends with the weight of one that is not") {
  check_cut_and_resumed(no_op_options, 3);
}

TEST_CASE("NoOpModel refuses targets without a name, and names those that a batch lacks") {
  CHECK_THROWS_WITH_AS(NoOpModel({.target_key = ""}), "NoOpModel: target_key must not be empty", ConfigError);
  TrainerOptions with = tiny_options();
  with.algorithms = {NoOpModel({.target_key = "labels"})};
  Trainer trainer(std::move(with));
  CHECK_THROWS(trainer.fit());
}

}  // namespace
}  // namespace composer::test::no_op_model_test

#include "composer/step/loss_scaling.h"

#include <limits>
#include <memory>
#include <optional>

#include <ATen/ATen.h>

#include "composer/core/state_dict.h"
#include "tests/support/doctest.h"
#include "tests/support/skippable_sgd.h"

namespace composer::test::loss_scaling_test {
namespace {

struct Fixture {
  Fixture() {
    weight.set_requires_grad(true);
    state.optimizer =
        Handle<torch::optim::Optimizer>(std::make_shared<SkippableSgd>(std::vector<at::Tensor>{weight}, 1.));
  }
  // A step with this gradient of the loss.
  void step(double gradient) {
    scaling.step([&] {
      const at::Tensor loss = (weight * gradient).sum();
      weight.mutable_grad() = at::Tensor();
      scaling.scale(loss).backward();
      if (scaling.is_on()) scaling.unscale();
      return loss;
    });
  }
  double value() const { return weight.item<double>(); }

  at::Tensor weight = at::zeros({1});
  State state;
  LossScaling scaling{state};
};

const optim::GradScalerOptions kOptions{.init_scale = 8, .growth_interval = 2};

TEST_CASE("Without scaling losses are left alone, and the optimizer steps") {
  Fixture one;
  one.scaling.use(Precision::FP32, std::nullopt);
  const at::Tensor loss = at::ones({});
  CHECK(one.scaling.scale(loss).is_same(loss));
  one.step(2);
  CHECK(one.value() == -2);
  CHECK_FALSE(one.scaling.has_scale());
}

TEST_CASE("A scaled step has the gradients of the loss, and one that overflows is skipped") {
  Fixture one;
  one.scaling.use(Precision::FP32, kOptions);
  CHECK(one.scaling.scale(at::ones({})).item<double>() == 8);
  one.step(2);
  CHECK(one.value() == -2);
  one.step(std::numeric_limits<double>::infinity());
  CHECK(one.value() == -2);
  CHECK(one.scaling.scale(at::ones({})).item<double>() == 4);
}

TEST_CASE("Steps make gradients, also where the caller makes none") {
  Fixture one;
  one.scaling.use(Precision::FP32, kOptions);
  const at::NoGradGuard no_grad;
  one.step(2);
  CHECK(one.value() == -2);
}

TEST_CASE("A scale outlives fits that do not use it, and is saved") {
  Fixture one, other;
  one.scaling.use(Precision::FP32, kOptions);
  one.step(std::numeric_limits<double>::infinity());
  one.scaling.use(Precision::FP32, std::nullopt);
  CHECK_FALSE(one.scaling.is_on());
  one.scaling.use(Precision::FP32, optim::GradScalerOptions{.init_scale = 64});
  CHECK(one.scaling.scale(at::ones({})).item<double>() == 4);

  StateDict saved;
  StateVisitor save = StateVisitor::saving(saved);
  one.scaling.visit_state(save);
  other.scaling.use(Precision::FP32, kOptions);
  StateVisitor load = StateVisitor::loading(saved, "");
  other.scaling.visit_state(load);
  CHECK(other.scaling.scale(at::ones({})).item<double>() == 4);
}

}  // namespace
}  // namespace composer::test::loss_scaling_test

#include "composer/optim/grad_scaler.h"

#include <cmath>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/skippable_sgd.h"

namespace composer::test::grad_scaler_test {
namespace {

using optim::GradScaler;

struct Scaled {
  explicit Scaled(optim::GradScalerOptions options) : scaler(options, at::kCPU) {}

  // One step on the loss sum(factor * w), whose gradient is the factor.
  void step(double factor) {
    optimizer.zero_grad();
    scaler.scale((w * factor).sum() + (v * 2).sum()).backward();
    scaler.unscale(optimizer);
    scaler.step(optimizer);
    scaler.update();
  }
  double scale() const { return scaler.scale_factor().item<double>(); }
  int good_steps() const { return scaler.growth_tracker().item<int>(); }

  at::Tensor w = at::ones({3}).requires_grad_(), v = at::ones({2}, at::kDouble).requires_grad_();
  SkippableSgd optimizer{{w, v}, 0.5};
  GradScaler scaler;
};

TEST_CASE("A scaled step takes the gradients of the unscaled loss") {
  Scaled run({.init_scale = 1024});
  run.step(0.25);
  CHECK(at::equal(run.w.grad(), at::full({3}, 0.25)));
  CHECK(at::equal(run.w, at::full({3}, 0.875)));
  CHECK(at::equal(run.v, at::zeros({2}, at::kDouble)));  // parameters of another type too
  CHECK(run.scaler.found_inf().item<float>() == 0);
}

TEST_CASE("A gradient that is not finite skips the step of all parameters and shrinks the scale") {
  for (const double bad : {double{INFINITY}, -double{INFINITY}, double{NAN}}) {
    CAPTURE(bad);
    Scaled run({.init_scale = 1024, .backoff_factor = 0.25});
    run.step(bad);
    CHECK(at::equal(run.w, at::ones({3})));
    CHECK(at::equal(run.v, at::ones({2}, at::kDouble)));
    CHECK(run.scale() == 256);
    run.step(1);  // and the next one is taken
    CHECK(at::equal(run.w, at::full({3}, 0.5)));
    CHECK(run.scale() == 256);
  }
}

TEST_CASE("A loss that only overflows because of the scale finds one that fits") {
  Scaled run({.init_scale = std::ldexp(1., 120)});
  for (int i = 0; i < 12 && at::equal(run.w, at::ones({3})); ++i) run.step(std::ldexp(1., 10));
  CHECK(at::equal(run.w, at::full({3}, 1 - 512.)));
  CHECK(run.scale() == std::ldexp(1., 117));
}

TEST_CASE("The scale grows after as many good steps in a row as asked for") {
  Scaled run({.init_scale = 8, .growth_factor = 4, .growth_interval = 3});
  run.step(1), run.step(1);
  CHECK(run.scale() == 8);
  CHECK(run.good_steps() == 2);
  run.step(NAN);  // counts from the start
  CHECK(run.scale() == 4);
  run.step(1), run.step(1);
  CHECK(run.scale() == 4);
  run.step(1);
  CHECK(run.scale() == 16);
  CHECK(run.good_steps() == 0);
}

TEST_CASE("A scaler goes on from the tensors that another one had") {
  Scaled first({.init_scale = 8, .growth_interval = 3});
  first.step(1), first.step(1);
  Scaled second({.growth_interval = 3});
  second.scaler.load(first.scaler.scale_factor().clone(), first.scaler.growth_tracker().clone());
  second.step(1);
  CHECK(second.scale() == 16);
  CHECK_THROWS_AS(second.scaler.load(at::ones({2}), at::ones({1})), DataError);
}

TEST_CASE("A sparse gradient is unscaled, and its infinities are found") {
  for (const double value : {3., double{INFINITY}}) {
    const at::Tensor w = at::ones({4}).requires_grad_();
    SkippableSgd optimizer({w}, 1);
    GradScaler scaler({.init_scale = 2}, at::kCPU);
    w.mutable_grad() =
        at::sparse_coo_tensor(at::tensor({1, 3}, at::kLong).unsqueeze(0), at::tensor({value, 4.}, at::kFloat), {4});
    scaler.unscale(optimizer);
    CHECK(w.grad().to_dense()[3].item<double>() == 2);
    CHECK(scaler.found_inf().item<float>() == (std::isinf(value) ? 1 : 0));
  }
}

TEST_CASE("A scaler refuses bad options, float16 parameters, and optimizers that cannot skip") {
  for (const optim::GradScalerOptions& bad :
       {optim::GradScalerOptions{.init_scale = 0}, optim::GradScalerOptions{.init_scale = INFINITY},
        optim::GradScalerOptions{.growth_factor = 0.5}, optim::GradScalerOptions{.backoff_factor = 0},
        optim::GradScalerOptions{.backoff_factor = 1.5}, optim::GradScalerOptions{.growth_interval = 0}})
    CHECK_THROWS_AS(GradScaler(bad, at::kCPU), ConfigError);

  GradScaler scaler({}, at::kCPU);
  const at::Tensor half = at::ones({2}, at::kHalf).requires_grad_();
  half.mutable_grad() = at::ones({2}, at::kHalf);
  const SkippableSgd optimizer({half}, 1);
  CHECK_THROWS_AS(scaler.unscale(optimizer), ConfigError);

  torch::optim::SGD plain({at::ones({2}).requires_grad_()}, 1.);
  CHECK_THROWS_WITH_AS(scaler.step(plain), doctest::Contains("torch::optim::SGD cannot"), ConfigError);
}

}  // namespace
}  // namespace composer::test::grad_scaler_test

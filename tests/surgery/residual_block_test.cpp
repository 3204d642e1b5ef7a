#include "composer/surgery/residual_block.h"

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::test::residual_block_test {
namespace {

struct Block final : ResidualBlock {
  int calls = 0;
  at::Tensor branch(const at::Tensor& x) override {
    ++calls;
    return x * 10;
  }
  at::Tensor finish(at::Tensor sum) override { return sum.add_(1); }
};

using Drop = ResidualBlock::Drop;

TEST_CASE("a residual block that drops nothing adds its branch and its shortcut") {
  Block block;
  const at::Tensor x = at::randn({4, 3});
  CHECK(block.forward(x).equal(x * 10 + x + 1));
  block.eval();
  CHECK(block.forward(x).equal(x * 10 + x + 1));
}

TEST_CASE("a dropped branch is not computed, and the input is not written into") {
  Block block;
  block.set_drop(1, Drop::BATCH);
  const at::Tensor x = at::randn({4, 3}), before = x.clone();
  CHECK(block.forward(x).equal(x + 1));
  CHECK(block.calls == 0);
  CHECK(x.equal(before));
}

TEST_CASE("a branch is dropped as often as its rate says, whole or for each sample") {
  at::manual_seed(3);
  Block block;
  const at::Tensor x = at::ones({4000, 1});
  block.set_drop(0.25, Drop::SAMPLE);
  const at::Tensor kept = (block.forward(x) - 2) / 10;
  CHECK((kept.eq(0) | kept.eq(1)).all().item<bool>());
  CHECK(kept.mean().item<double>() == doctest::Approx(0.75).epsilon(0.05));
  block.set_drop(0.25, Drop::BATCH);
  block.calls = 0;
  for (int i = 0; i < 4000; ++i) block.forward(at::ones({1, 1}));
  CHECK(block.calls == doctest::Approx(3000).epsilon(0.05));
}

TEST_CASE("a branch in half precision is dropped as often as its rate says, and never doubled") {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    CAPTURE(type);
    at::manual_seed(3);
    Block block;
    block.set_drop(0.001, Drop::SAMPLE);
    const at::Tensor y = block.forward(at::ones({400'000, 1}, type));
    CHECK((y.scalar_type() == type));
    CHECK((y.eq(2) | y.eq(12)).all().item<bool>());
    CHECK(y.eq(2).sum().item<std::int64_t>() == doctest::Approx(400).epsilon(0.2));
  }
}

TEST_CASE("evaluation weighs the branch by the probability that it is kept") {
  Block block;
  block.eval();
  const at::Tensor x = at::randn({4, 3});
  for (const Drop how : {Drop::BATCH, Drop::SAMPLE}) {
    block.set_drop(0.25, how);
    CHECK(block.forward(x).equal(x * 10 * 0.75 + x + 1));
  }
}

TEST_CASE("a drop rate outside of 0 to 1 is refused") {
  Block block;
  for (const double rate : {-0.1, 1.1, std::nan("")}) CHECK_THROWS_AS(block.set_drop(rate, Drop::BATCH), ConfigError);
}

}  // namespace
}  // namespace composer::test::residual_block_test

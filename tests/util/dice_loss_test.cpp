// The values of dice_loss beside those that are recorded: masks, absent classes, gradients, half precision.
#include "composer/util/dice_loss.h"

#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::dice_loss_test {
namespace {

double value(const at::Tensor& tensor) { return tensor.item<double>(); }
at::Tensor random_logits() { return at::randn({2, 3, 4, 5}, at::kDouble); }
at::Tensor random_classes(std::int64_t from = 0) { return at::randint(from, 3, {2, 4, 5}, at::kLong); }

}  // namespace

TEST_CASE("A perfect output has a Dice loss of 0, and one that misses everything of almost 1") {
  const at::Tensor target = random_classes();
  const at::Tensor right = at::one_hot(target, 3).permute({0, 3, 1, 2}).to(at::kDouble);
  CHECK(value(dice_loss(right, target, {.activation = DiceActivation::NONE})) == doctest::Approx(0));
  const at::Tensor wrong = right.roll(1, 1);
  CHECK(value(dice_loss(wrong, target, {.activation = DiceActivation::NONE})) == doctest::Approx(1).epsilon(1e-4));
  CHECK(value(dice_loss(right * 100, target)) == doctest::Approx(0));
}

TEST_CASE("The Dice loss of one class is that of its formula") {
  const at::Tensor output = at::tensor({0.5, 1., 0.25, 0.}, at::kDouble).view({1, 1, 4}),
                   target = at::tensor({1., 1., 0., 0.}, at::kDouble).view({1, 1, 4});
  const auto loss = [&](DiceLossOptions options) {
    options.activation = DiceActivation::NONE;
    return value(dice_loss(output, target, options));
  };
  // a pixel without probability counts nothing: 1.5 in common, 2 + 1.5
  CHECK(loss({}) == doctest::Approx(1 - 3 / 3.5).epsilon(1e-4));
  CHECK(loss({.squared_pred = true}) == doctest::Approx(1 - 3 / 3.25).epsilon(1e-4));
  CHECK(loss({.jaccard = true}) == doctest::Approx(1 - 1.5 / 2).epsilon(1e-4));
}

TEST_CASE("Pixels of a negative class have no share in the Dice loss, and no gradient") {
  at::manual_seed(2);
  const at::Tensor target = random_classes();
  const at::Tensor ignored = target.masked_fill(at::rand({2, 4, 5}) < 0.3, -100);
  const at::Tensor logits = random_logits();
  const at::Tensor other = at::where(ignored.lt(0).unsqueeze(1), logits + 5, logits).requires_grad_();
  const at::Tensor loss = dice_loss(other, ignored);
  CHECK(value(loss) == doctest::Approx(value(dice_loss(logits, ignored))).epsilon(1e-12));
  CHECK(value(loss) != doctest::Approx(value(dice_loss(logits, target))));
  loss.backward();
  CHECK(other.grad().masked_select(ignored.lt(0).unsqueeze(1)).eq(0).all().item<bool>());
}

TEST_CASE("The Dice loss of ignored pixels alone has no gradient, and is 0 if absent classes are left out") {
  for (const bool leaves_out : {false, true})
    for (const bool batch : {false, true}) {
      const at::Tensor x = random_logits().requires_grad_(), target = at::full({2, 4, 5}, -100, at::kLong);
      const at::Tensor loss = dice_loss(x, target, {.batch = batch, .ignore_absent_classes = leaves_out});
      CHECK(value(loss) == 0);
      loss.backward();
      CHECK(at::equal(x.grad(), at::zeros_like(x)));
    }
}

TEST_CASE("Masks of zeros and ones may be whole numbers for the Dice loss") {
  const at::Tensor target = at::one_hot(random_classes(), 3).permute({0, 3, 1, 2}), x = random_logits();
  CHECK(at::equal(dice_loss(x, target), dice_loss(x, target.to(at::kDouble))));
}

TEST_CASE("Absent classes are left out of the Dice loss if asked to") {
  at::manual_seed(2);
  const at::Tensor logits = random_logits(), target = random_classes(1);  // without class 0
  for (const bool batch : {false, true}) {
    CAPTURE(batch);
    const auto loss = [&](Reduction reduction, bool ignore) {
      return dice_loss(logits, target, {.batch = batch, .ignore_absent_classes = ignore, .reduction = reduction});
    };
    const at::Tensor all = loss(Reduction::NONE, false), present = loss(Reduction::NONE, true);
    CHECK(all.sizes() == (batch ? at::IntArrayRef({3}) : at::IntArrayRef({2, 3})));
    CHECK(present.select(-1, 0).eq(0).all().item<bool>());
    CHECK(at::equal(present.slice(-1, 1), all.slice(-1, 1)));
    CHECK(value(loss(Reduction::MEAN, true)) == doctest::Approx(value(all.slice(-1, 1).mean())).epsilon(1e-12));
    CHECK(value(loss(Reduction::SUM, true)) == doctest::Approx(value(all.slice(-1, 1).sum())).epsilon(1e-12));
    CHECK(value(loss(Reduction::MEAN, false)) == doctest::Approx(value(all.mean())).epsilon(1e-12));
  }
}

TEST_CASE("The gradient of the Dice loss is that of central differences") {
  at::manual_seed(4);
  const at::Tensor target = random_classes(), logits = random_logits().requires_grad_();
  const DiceLossOptions cases[] = {
      {},
      {.activation = DiceActivation::SIGMOID, .squared_pred = true},
      {.jaccard = true, .batch = true},
      {.squared_pred = true, .jaccard = true, .ignore_absent_classes = true, .reduction = Reduction::SUM}};
  for (const DiceLossOptions& options : cases) {
    logits.mutable_grad().reset();
    dice_loss(logits, target, options).backward();
    const at::NoGradGuard no_grad;
    for (std::int64_t i = 0; i < logits.numel(); i += 7) {
      const auto moved = [&](double by) {
        const at::Tensor x = logits.detach().clone();
        x.view(-1)[i] += by;
        return value(dice_loss(x, target, options));
      };
      CHECK(value(logits.grad().view(-1)[i]) == doctest::Approx((moved(1e-5) - moved(-1e-5)) / 2e-5).epsilon(1e-6));
    }
  }
}

TEST_CASE("The Dice loss of outputs in half precision is that of the same numbers in float32") {
  const at::Tensor target = random_classes();
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor logits = random_logits().to(type);
    CHECK(at::equal(dice_loss(logits, target), dice_loss(logits.to(at::kFloat), target)));
  }
}

TEST_CASE("The Dice loss refuses shapes that do not fit, and the softmax of a single class") {
  CHECK_THROWS_WITH_AS(dice_loss(at::zeros({2, 1, 3}), at::zeros({2, 3}, at::kLong)),
                       doctest::Contains("the softmax of a single class is 1 everywhere; use SIGMOID"), DataError);
  CHECK_THROWS_WITH_AS(dice_loss(at::zeros({2, 3}), at::zeros({2}, at::kLong)),
                       doctest::Contains("needs outputs [N, C, ...] of several pixels each, got [2, 3]"), DataError);
  CHECK_THROWS_AS(dice_loss(at::zeros({2, 3, 4}), at::zeros({2, 5}, at::kLong)), DataError);
}

}  // namespace composer::dice_loss_test

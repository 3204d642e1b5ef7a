// Algorithms that mix samples, together: whatever their order, targets are those of the images that the model gets.
#include <memory>
#include <vector>

#include <ATen/ATen.h>

#include "composer/algorithms/cutmix.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::test::mixing_test {
namespace {

using algorithms::CutMix;
using algorithms::LabelSmoothing;
using algorithms::MixUp;
using Order = std::vector<std::shared_ptr<Algorithm>>;

constexpr std::int64_t kSamples = 6, kClasses = 3;

// Images whose pixels tell their class: channel k of an image of class k is 1, the others are 0. So the mean of a
// channel is what a mixture has of that class, and with masks every pixel is its own target.
Batch telling(const at::Tensor& target) {
  at::Tensor pixels = at::one_hot(target, kClasses).to(at::kFloat);
  pixels = target.dim() == 1 ? pixels.view({kSamples, kClasses, 1, 1}).expand({kSamples, kClasses, 4, 4})
                             : pixels.permute({0, 3, 1, 2});
  return {{"input", pixels.contiguous()}, {"target", target}};
}

// The batch as the loss gets it.
Batch mixed(const Order& order, FakeRun& run, Batch batch) {
  run.state.batch = std::move(batch);
  const auto fire = [&](Event event) {
    for (const auto& algorithm : order)
      if (algorithm->events().contains(event)) algorithm->apply(event, run.state, run.logger);
  };
  fire(Event::BEFORE_FORWARD);
  run.state.outputs = run.state.batch["input"];
  if (run.state.batch["target"].dim() == 1) run.state.outputs = run.state.batch["input"].mean(at::IntArrayRef{2, 3});
  fire(Event::BEFORE_LOSS);
  return run.state.batch;
}

std::vector<Order> orders() {
  const auto mixup = [] { return std::make_shared<MixUp>(algorithms::MixUpOptions{.alpha = 1}); };
  const auto cutmix = [] { return std::make_shared<CutMix>(); };
  return {{mixup(), cutmix()}, {cutmix(), mixup()}, {mixup()}, {cutmix()}};
}

}  // namespace

TEST_CASE("MixUp and CutMix in one run give the shares of the classes that are in the images") {
  for (const Order& order : orders()) {
    FakeRun run;
    run.state.seed = 5;
    for (int batch = 0; batch < 10; ++batch) {
      run.state.timestamp = run.state.timestamp.to_next_batch();
      const Batch got = mixed(order, run, telling(at::randint(kClasses, {kSamples}, at::kLong)));
      CHECK(at::allclose(got["target"], got["input"].mean(at::IntArrayRef{2, 3}), 1e-5, 1e-6));
    }
  }
}

TEST_CASE("MixUp and CutMix in one run give the shares of the classes of every pixel of a mask") {
  for (const Order& order : orders()) {
    FakeRun run;
    for (int batch = 0; batch < 10; ++batch) {
      run.state.timestamp = run.state.timestamp.to_next_batch();
      const Batch got = mixed(order, run, telling(at::randint(kClasses, {kSamples, 4, 4}, at::kLong)));
      at::Tensor target = got["target"];
      if (target.dim() == 3) target = at::one_hot(target, kClasses).permute({0, 3, 1, 2}).to(at::kFloat);
      CHECK(at::allclose(target, got["input"], 1e-5, 1e-6));
    }
  }
}

TEST_CASE("Label smoothing before and after mixing gives the same targets") {
  for (const bool first : {true, false})
    for (Order order : orders()) {
      CAPTURE(first);
      order.insert(first ? order.begin() : order.end(),
                   std::make_shared<LabelSmoothing>(algorithms::LabelSmoothingOptions{.smoothing = 0.3}));
      FakeRun run;
      run.state.timestamp = run.state.timestamp.to_next_batch();
      const Batch got = mixed(order, run, telling(at::randint(kClasses, {kSamples}, at::kLong)));
      const at::Tensor shares = got["input"].mean(at::IntArrayRef{2, 3});
      CHECK(at::allclose(got["target"], shares * 0.7 + 0.1, 1e-5, 1e-6));
    }
}

}  // namespace composer::test::mixing_test

// Algorithms that mix samples, together: whatever their order, targets are those of the images that the model gets.
#include <memory>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/cutmix.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny.h"

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

// An algorithm after LabelSmoothing that replaces what it has made.
struct Replaces : Algorithm {
  EventSet events() const override { return {Event::BEFORE_LOSS}; }
  Placement placement() const override { return Placement::LAST; }
  void apply(Event, State& state, Logger&) override { state.batch.set("target", state.batch["target"].clone()); }
};

TEST_CASE("Behind LabelSmoothing, losses are mixed of the targets that other algorithms have left, unsmoothed") {
  const at::Tensor one = at::tensor({3, 1, 5, 0, 2, 4}, at::kLong), two = at::tensor({2, 0, 1, 5, 3, 4}, at::kLong);
  const auto mixup = [&](bool losses) {
    return algorithms::MixUp({.interpolate_loss = losses, .draw = [&](std::int64_t) {
                                return algorithms::MixUpDraw{0.25, one};
                              }});
  };
  const auto cutmix = [&](bool losses) {
    return algorithms::CutMix({.interpolate_loss = losses, .draw = [&](std::int64_t, std::int64_t, std::int64_t) {
                                 return algorithms::CutMixDraw{two, {.top = 1, .left = 0, .bottom = 3, .right = 3}};
                               }});
  };
  const algorithms::LabelSmoothing smoothing({.smoothing = 0.3});
  const at::Tensor y = at::one_hot(at::arange(kSamples).remainder(kClasses), kClasses).to(at::kFloat);
  const auto after = [](const at::Tensor& from, const at::Tensor& order, double share) {
    return from * (1 - share) + from.index_select(0, order) * share;
  };
  struct Row {
    const char* what;
    Algorithms algorithms;
    at::Tensor first, order;  // the targets of the first loss before they are smoothed, and whose the second are
    double share;
  };
  const double cut = 6. / 16;
  for (const auto& [what, algorithms, first, order, share] :
       {Row{"first", {smoothing, mixup(false), cutmix(true)}, after(y, one, 0.25), two, cut},
        Row{"between", {mixup(false), smoothing, cutmix(true)}, after(y, one, 0.25), two, cut},
        Row{"last", {mixup(false), cutmix(true), smoothing}, after(y, one, 0.25), two, cut},
        Row{"before losses of MixUp", {smoothing, cutmix(false), mixup(true)}, after(y, two, cut), one, 0.25},
        Row{"alone with CutMix", {smoothing, cutmix(true)}, y, two, cut}}) {
    CAPTURE(what);
    struct Seen {
      at::Tensor logits, loss, target;
    } seen;
    TrainerOptions options = tiny_options();
    const at::Tensor images = at::sin(at::arange(kSamples * 16, at::kFloat) * 1.7).view({kSamples, 1, 4, 4});
    options.model = std::make_shared<models::Classifier>(
        torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(16, kClasses)),
        models::ClassifierOptions{.num_classes = kClasses});
    options.train_dataloader =
        data::in_memory({{"input", images}, {"target", y.argmax(1)}}, {.batch_size = kSamples, .shuffle = false});
    options.max_duration = "1ba";
    options.algorithms = algorithms;
    options.callbacks.add(At([&seen](Event event, const State& state) {
      if (event == Event::AFTER_FORWARD) seen.logits = state.outputs.only().detach().cpu();
      if (event == Event::AFTER_LOSS) seen.target = state.batch["target"].cpu();
      if (event == Event::AFTER_BACKWARD) seen.loss = state.loss["total"].detach().cpu();
    }));
    Trainer(std::move(options)).fit();
    const at::Tensor left = seen.target.dim() == 1 ? at::one_hot(seen.target, kClasses).to(at::kFloat) : seen.target;
    CHECK(at::allclose(left, first));
    const auto loss = [&](const at::Tensor& target) { return -(seen.logits.log_softmax(1) * target).sum(1).mean(); };
    const at::Tensor expected = loss(first * 0.7 + 0.1) * (1 - share) + loss(first.index_select(0, order)) * share;
    CHECK(seen.loss.item<double>() == doctest::Approx(expected.item<double>()).epsilon(1e-5));
  }
}

TEST_CASE("LabelSmoothing leaves a target alone that another algorithm has set meanwhile") {
  FakeRun run;
  LabelSmoothing smoothing;
  Replaces replaces;
  run.state.batch = {{"input", at::zeros({2, 4})}, {"target", at::tensor({0, 1}, at::kLong)}};
  run.state.outputs = at::zeros({2, kClasses});
  smoothing.apply(Event::BEFORE_LOSS, run.state, run.logger);
  replaces.apply(Event::BEFORE_LOSS, run.state, run.logger);
  const at::Tensor set = run.state.batch["target"];
  smoothing.apply(Event::AFTER_LOSS, run.state, run.logger);
  CHECK(run.state.batch["target"].is_same(set));
}

}  // namespace composer::test::mixing_test

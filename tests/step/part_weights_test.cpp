// However a batch is split, into microbatches, over ranks or into virtual shards, its loss and its gradient are those
// of the whole: parts weigh what the loss is a mean over.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "composer/algorithms/cutmix.h"
#include "composer/algorithms/ema.h"
#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/mixup.h"
#include "composer/algorithms/sam.h"
#include "composer/callbacks/nan_monitor.h"
#include "composer/metrics/loss_metrics.h"
#include "composer/models/gpt.h"
#include "composer/models/language_model.h"
#include "composer/models/regressor.h"
#include "composer/util/loss.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::part_weights_test {

// A weight that nobody has read yet, as on a device.
struct OnDevice {
  using Member = at::Tensor LossWeight::*;
  friend Member member_of(OnDevice);
};
template <OnDevice::Member member>
struct Opens {
  friend OnDevice::Member member_of(OnDevice) { return member; }
};
template struct Opens<&LossWeight::on_device_>;

LossWeight unread(const at::Tensor& weight) {
  LossWeight made;
  made.*member_of(OnDevice{}) = weight.to(at::kDouble);
  return made;
}

namespace {

namespace nn = torch::nn;
using dist::test::results_in_ranks;

constexpr std::int64_t kSamples = 10, kClasses = 4;
const std::vector<std::int64_t> kSizes{10, 5, 4, 3, 2, 1};  // of microbatches: 1, 2, 3, 4, 5 and 10 parts

at::Tensor numbers(at::IntArrayRef sizes) {
  return at::sin(at::arange(c10::multiply_integers(sizes), at::kDouble) * 1.7).view(sizes);
}

// Classes, of which most at the beginning are ignored: some parts have none.
at::Tensor targets(std::int64_t each = 1) {
  const at::Tensor classes = at::arange(kSamples * each, at::kLong).remainder(kClasses).view({kSamples, each});
  return classes.masked_fill(at::tensor({1, 1, 1, 1, 0, 0, 0, 1, 0, 0}).view({kSamples, 1}).to(at::kBool), -100);
}

at::Tensor kinds_weights() { return at::tensor({5., 1., 0.2, 3.}, at::kDouble); }

std::shared_ptr<Model> in_double(std::shared_ptr<Model> model) {
  model->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.copy_(numbers(parameter.sizes()) * 0.3);
  return model;
}

nn::Sequential flat_net() { return nn::Sequential(nn::Flatten(), nn::Linear(16, kClasses)); }

std::shared_ptr<Model> classifier(models::ClassifierOptions options = {}) {
  options.num_classes = kClasses;
  return std::make_shared<models::Classifier>(flat_net(), std::move(options));
}

// The two blocks of docs/reference/models.md.
std::shared_ptr<Model> weighted_classifier() {
  const at::Tensor class_weights = kinds_weights().to(device_of_tests());
  const SoftCrossEntropyOptions weighted{.weight = class_weights};
  models::ClassifierOptions options{
      .num_classes = 4,
      .loss_fn = [weighted](const at::Tensor& x, const at::Tensor& y) { return soft_cross_entropy(x, y, weighted); },
      .loss_weight = [weighted](const at::Tensor& y) { return target_weight(y, weighted); }};
  return classifier(std::move(options));
}

std::shared_ptr<Model> pixel_classifier() {
  return std::make_shared<models::Classifier>(nn::Conv2d(nn::Conv2dOptions(1, kClasses, 1)),
                                              models::ClassifierOptions{.num_classes = kClasses});
}

std::shared_ptr<Model> language_model() {
  return models::gpt({.vocabulary = 7, .sequence_length = 3, .width = 8, .depth = 1, .heads = 2});
}

// As people write it: 0/0 if all targets are ignored.
struct MaskedMean : Model {
  MaskedMean() { register_module("net", net); }
  Outputs forward(const Batch& batch) override { return net->forward(batch["input"]); }
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    const at::Tensor counts = batch["target"].ne(-100);
    const at::Tensor each =
        at::cross_entropy_loss(outputs.only(), batch["target"].clamp_min(0), {}, at::Reduction::None);
    const at::Tensor mean = (each * counts).sum() / counts.sum();
    return {{"masked", mean}, {"twice", mean * 2}};
  }
  nn::Sequential net = flat_net();
};

struct ToldMaskedMean : MaskedMean {
  LossWeight loss_weight(const Batch& batch) const override { return target_weight(batch["target"]); }
};

std::shared_ptr<Model> masked_mean(bool says) {
  if (says) return std::make_shared<ToldMaskedMean>();
  return std::make_shared<MaskedMean>();
}

// Classes derived from the library's models. What those would weigh targets by is zero or negative for some parts, or
// for all of them.
models::ClassifierOptions without_metrics() {
  return {.num_classes = kClasses, .train_metrics = Metrics(), .val_metrics = Metrics()};
}

struct Labels : models::Classifier {
  explicit Labels(models::ClassifierOptions options = without_metrics()) : Classifier(flat_net(), std::move(options)) {}
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::binary_cross_entropy_with_logits(outputs.only(), batch["target"]);
  }
};

struct Teacher : models::Classifier {
  explicit Teacher(models::ClassifierOptions options = without_metrics())
      : Classifier(flat_net(), std::move(options)) {}
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::mse_loss(outputs.only(), batch["target"]);
  }
};

struct Absolute : models::Regressor {
  explicit Absolute(models::RegressorOptions options) : Regressor(flat_net(), std::move(options)) {}
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::l1_loss(outputs.only(), batch["target"]);
  }
};

// The loss of the base, of which the weight is, and a second one.
struct Penalized : models::Classifier {
  Penalized() : Classifier(flat_net(), without_metrics()) {}
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    Losses losses = Classifier::loss(outputs, batch);
    losses.set("penalty", 0.1 * parameters().front().square().sum());
    losses.set("total", losses["total"] + losses["penalty"]);
    return losses;
  }
};

struct Doubled : models::Classifier {
  Doubled() : Classifier(flat_net(), without_metrics()) {}
  Outputs forward(const Batch& batch) override { return Classifier::forward(batch).only() * 2; }
};

// With the weight that the default is, of a loss of its own.
struct Told : models::Classifier {
  Told()
      : Classifier(flat_net(), {.num_classes = kClasses,
                                .loss_weight = [](const at::Tensor& target) { return target_weight(target); }}) {}
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return at::cross_entropy_loss(outputs.only(), batch["target"]);
  }
};

LossWeight sum_of(const at::Tensor& target) { return target.sum(); }

std::shared_ptr<Model> teacher_with_loss_fn() {
  models::ClassifierOptions options = without_metrics();
  options.loss_fn = [](const at::Tensor& logits, const at::Tensor&) { return logits.sum(); };
  options.loss_weight = sum_of;
  return std::make_shared<Teacher>(std::move(options));
}

std::shared_ptr<Model> absolute_with_loss_fn() {
  return std::make_shared<Absolute>(models::RegressorOptions{
      .loss_fn = [](const at::Tensor& output, const at::Tensor&) { return output.sum(); }, .loss_weight = sum_of});
}

std::shared_ptr<Model> teacher_of_tokens() {
  models::ClassifierOptions options = models::classifier_options(models::LanguageModelOptions{.input = "input"});
  options.train_metrics = Metrics();
  return std::make_shared<Teacher>(std::move(options));
}

Batch images(at::Tensor target) { return {{"input", numbers({kSamples, 1, 4, 4})}, {"target", std::move(target)}}; }

Batch masks() {
  at::Tensor target = targets().view({kSamples, 1, 1}).repeat({1, 4, 4});
  target[5][0].fill_(-100);
  target[6][1][2] = -100;
  return images(target);
}

// Rows of probabilities, those of ignored samples zero.
Batch probabilities() {
  const at::Tensor target = targets().flatten();
  const at::Tensor rows = at::softmax(numbers({kSamples, kClasses}), 1);
  return images(rows * target.ge(0).unsqueeze(1));
}

Batch sentences() {
  at::Tensor target = targets(3);
  target[4].slice(0, 1) = -100;
  target[8][0] = -100;
  return {{"input_ids", at::arange(kSamples * 3, at::kLong).remainder(7).view({kSamples, 3})}, {"target", target}};
}

struct Kind {
  const char* name;
  std::function<std::shared_ptr<Model>()> model;
  std::function<Batch()> batch;
  bool smooths = true, mixes = true;  // its loss takes probabilities, its input can be mixed
};

std::vector<Kind> kinds() {
  const auto some_classes = [] { return images(targets().flatten()); };
  return {{"classifier", [] { return classifier(); }, some_classes},
          {"class weights", weighted_classifier, some_classes},
          {"pixels", pixel_classifier, masks},
          {"probabilities", [] { return classifier(); }, probabilities},
          {"own model", [] { return masked_mean(true); }, some_classes, false, false},
          {"language model", language_model, sentences, false, false},
          {"regressor", [] { return std::make_shared<models::Regressor>(flat_net()); },
           [] {
             return images(numbers({kSamples, kClasses}));
           },
           false, false}};
}

Batch numbers_of_images() { return images(numbers({kSamples, kClasses}) - 0.5); }

Batch labels() {
  at::Tensor target = numbers({kSamples, kClasses}).gt(0.2).to(at::kDouble);
  target[0].fill_(1);
  for (const std::int64_t none : {2, 3, 6}) target[none].fill_(0);
  return images(target);
}

std::vector<Kind> derived_kinds() {
  const auto some_classes = [] { return images(targets().flatten()); };
  return {{"labels", [] { return std::make_shared<Labels>(); }, labels, false, false},
          {"no labels", [] { return std::make_shared<Labels>(); },
           [] {
             return images(at::zeros({kSamples, kClasses}, at::kDouble));
           },
           false, false},
          {"teacher", [] { return std::make_shared<Teacher>(); }, numbers_of_images, false, false},
          {"teacher with a loss_fn", teacher_with_loss_fn, numbers_of_images, false, false},
          {"teacher of tokens", teacher_of_tokens, numbers_of_images, false, false},
          {"regressor", [] { return std::make_shared<Absolute>(models::RegressorOptions{}); }, numbers_of_images, false,
           false},
          {"regressor with a loss_fn", absolute_with_loss_fn, numbers_of_images, false, false},
          {"penalized", [] { return std::make_shared<Penalized>(); }, some_classes, false, false},
          {"doubled", [] { return std::make_shared<Doubled>(); }, some_classes, true, true},
          {"told", [] { return std::make_shared<Told>(); }, some_classes, false, false}};
}

// What makes probabilities of targets makes them in float32, also for models in double. Each sample is mixed with
// itself: which ones are mixed depends on the microbatch.
struct Changes {
  const char* name;
  std::function<void(TrainerOptions&)> add;
  bool smooths = false, mixes = false;
};

constexpr double kExact = 1e-12, kSingle = 1e-6;
double tolerance_of(const Changes& change) { return change.smooths ? kSingle : kExact; }

at::Tensor itself(std::int64_t samples) { return at::arange(samples, at::kLong); }

std::vector<Changes> changes() {
  const auto mixup = [](bool losses) {
    return [losses](TrainerOptions& options) {
      options.algorithms = {algorithms::MixUp({.interpolate_loss = losses, .draw = [](std::int64_t samples) {
                                                 return algorithms::MixUpDraw{0.25, itself(samples)};
                                               }})};
    };
  };
  const auto cutmix = [](TrainerOptions& options) {
    options.algorithms = {algorithms::CutMix({.draw = [](std::int64_t samples, std::int64_t, std::int64_t) {
      return algorithms::CutMixDraw{itself(samples), {.top = 0, .left = 0, .bottom = 2, .right = 2}};
    }})};
  };
  return {
      {"nothing", [](TrainerOptions&) {}},
      {"LabelSmoothing",
       [](TrainerOptions& options) { options.algorithms = {algorithms::LabelSmoothing({.smoothing = 0.25})}; }, true},
      {"MixUp", mixup(false), true, true},
      {"MixUp of losses", mixup(true), true, true},
      {"CutMix", cutmix, true, true},
      {"SAM", [](TrainerOptions& options) { options.algorithms = {algorithms::SAM()}; }},
      {"scaled losses", [](TrainerOptions& options) { options.grad_scaler = {.init_scale = 1024}; }}};
}

struct Shown {
  at::Tensor gradient;
  std::vector<double> losses;
};

at::Tensor gradient_of(const State& state) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : state.model->parameters())
    if (parameter.grad().defined()) all.push_back(parameter.grad().flatten());
  return all.empty() ? at::zeros(1, at::kDouble) : at::cat(all).cpu().clone();
}

TrainerOptions options_of(const Kind& kind, const Changes& change, std::int64_t microbatch_size) {
  TrainerOptions options = tiny_options();
  options.model = in_double(kind.model());
  options.train_dataloader = data::in_memory(kind.batch(), {.batch_size = kSamples, .shuffle = false});
  options.device_train_microbatch_size = microbatch_size;
  options.max_duration = "1ba";
  change.add(options);
  return options;
}

// The gradient and the losses of one batch.
Shown train(TrainerOptions options, std::shared_ptr<dist::World> world = nullptr) {
  Shown shown;
  options.world = std::move(world);
  options.callbacks.add(callbacks::NaNMonitor());
  options.callbacks.add(At([&shown](Event event, const State& state) {
    if (event == Event::AFTER_TRAIN_BATCH) shown.gradient = gradient_of(state);
  }));
  Trainer trainer(std::move(options));
  trainer.fit();
  for (const auto& [name, loss] : trainer.state().batch_loss) shown.losses.push_back(loss.item<double>());
  return shown;
}

void check_same(const Shown& shown, const Shown& whole, double tolerance = kExact) {
  REQUIRE(shown.gradient.sizes() == whole.gradient.sizes());
  CHECK((shown.gradient - whole.gradient).abs().max().item<double>() < tolerance);
  REQUIRE(shown.losses.size() == whole.losses.size());
  for (std::size_t i = 0; i < whole.losses.size(); ++i)
    CHECK(std::abs(shown.losses[i] - whole.losses[i]) < tolerance * std::abs(whole.losses[i]));
}

void for_each_kind(const std::function<void(const Kind&, const Changes&)>& check) {
  for (const Kind& kind : kinds())
    for (const Changes& change : changes()) {
      if ((change.smooths && !kind.smooths) || (change.mixes && !kind.mixes)) continue;
      if (std::string(kind.name) == "probabilities" && change.smooths) continue;  // not exact in float32
      CAPTURE(kind.name);
      CAPTURE(change.name);
      check(kind, change);
    }
}

TEST_CASE("Microbatches give the gradient and the loss of the whole batch, whatever the loss is a mean over") {
  for_each_kind([](const Kind& kind, const Changes& change) {
    const Shown whole = train(options_of(kind, change, 0));
    CHECK(whole.gradient.abs().max().item<double>() > 1e-3);
    for (const std::int64_t size : kSizes) {
      CAPTURE(size);
      check_same(train(options_of(kind, change, size)), whole, tolerance_of(change));
    }
  });
}

TEST_CASE("Ranks give the gradient and the loss of the whole batch, whatever the loss is a mean over") {
  for_each_kind([](const Kind& kind, const Changes& change) {
    const Shown whole = train(options_of(kind, change, 0));
    for (const int ranks : {2, 3, 4})
      for (const std::int64_t size : {std::int64_t{0}, std::int64_t{2}}) {
        CAPTURE(ranks);
        CAPTURE(size);
        for (const Shown& rank :
             results_in_ranks(ranks, [&](const auto& world) { return train(options_of(kind, change, size), world); }))
          check_same(rank, whole, tolerance_of(change));
      }
  });
}

TEST_CASE("Batches that are made on the device give the gradient and the loss of the whole, too") {
  for_each_kind([](const Kind& kind, const Changes& change) {
    const auto options = [&](std::int64_t size) {
      TrainerOptions made = options_of(kind, change, size);
      made.train_dataloader.batch_transforms = [](Batch& batch) {
        for (auto& [name, tensor] : batch) tensor = tensor.to(device_of_tests());
      };
      return made;
    };
    const Shown whole = train(options_of(kind, change, 0));
    for (const std::int64_t size : {0, 4, 2}) check_same(train(options(size)), whole, tolerance_of(change));
  });
}

TEST_CASE("A loss() of a derived class is weighed by its samples, unless it calls that of the base or says a weight") {
  for (const Kind& kind : derived_kinds()) {
    CAPTURE(kind.name);
    const std::shared_ptr<Model> model = in_double(kind.model());
    const Batch batch = kind.batch();
    const Losses losses = model->loss(model->forward(batch), batch);
    losses["total"].backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : model->parameters()) gradients.push_back(parameter.grad().flatten());
    Shown expected{.gradient = at::cat(gradients), .losses = {}};
    for (const auto& [name, loss] : losses) expected.losses.push_back(loss.item<double>());

    for (const Changes& change : {changes()[0], changes()[6]}) {
      for (const std::int64_t size : kSizes) {
        CAPTURE(size);
        check_same(train(options_of(kind, change, size)), expected);
      }
      for (const std::int64_t size : {0, 2})
        for (const Shown& rank :
             results_in_ranks(3, [&](const auto& world) { return train(options_of(kind, change, size), world); }))
          check_same(rank, expected);
    }
  }
}

TEST_CASE("A class that overrides loss() alone is warned of ignored targets, not of a batch without any") {
  struct Focal : models::Classifier {
    Focal() : Classifier(flat_net(), without_metrics()) {}
    Losses loss(const Outputs& outputs, const Batch& batch) override {
      return at::cross_entropy_loss(outputs.only(), batch["target"].clamp_min(0));
    }
  };
  const Warnings warnings;
  TrainerOptions options = options_of(
      {"", [] { return std::make_shared<Focal>(); }, [] { return images(at::full({kSamples}, -100, at::kLong)); }},
      changes().front(), 2);
  options.max_duration = "2ba";
  Trainer(std::move(options)).fit();
  CHECK(warnings.texts.size() == 1);
  CHECK(warnings.say("let Model::loss_weight return target_weight(batch[\"target\"])"));
}

TEST_CASE("A negative weight of a base whose loss() runs is an error, also in a derived class") {
  const Kind kind{"", [] { return std::make_shared<Doubled>(); },
                  [] {
                    return images(-at::ones({kSamples, kClasses}));
                  }};
  const std::string text = error_of([&] { Trainer(options_of(kind, changes().front(), 0)).fit(); });
  CHECK(text.find("Model::loss_weight: must be finite and >= 0, got -40") != std::string::npos);
}

TEST_CASE("A part without weight that only a device knows of gives a loss of 0 and no gradient, whatever its mean is") {
  struct OfDevice : MaskedMean {
    LossWeight loss_weight(const Batch& batch) const override { return unread(batch["target"].ne(-100).sum()); }
  };
  const auto some_classes = [] { return images(targets().flatten()); };
  const Kind kind{"", [] { return std::make_shared<OfDevice>(); }, some_classes};
  const Shown whole = train(options_of({"", [] { return masked_mean(true); }, some_classes}, changes().front(), 0));
  for (const Changes& change : {changes()[0], changes()[5], changes()[6]}) {
    const Shown expected = change.name == std::string("SAM")
                               ? train(options_of({"", [] { return masked_mean(true); }, some_classes}, change, 0))
                               : whole;
    for (const std::int64_t size : kSizes) {
      CAPTURE(size);
      check_same(train(options_of(kind, change, size)), expected);
    }
    for (const Shown& rank :
         results_in_ranks(3, [&](const auto& world) { return train(options_of(kind, change, 2), world); }))
      check_same(rank, expected);
  }
}

TEST_CASE("Metrics of training see every part, also one without weight") {
  struct Measured : ToldMaskedMean {
    Metrics get_metrics(bool) const override {
      return Metrics(
          metrics::LossMetric({.loss_function = [](const at::Tensor& x, const at::Tensor&) { return x.mean(); }}),
          metrics::CrossEntropy(), metrics::CrossEntropy({.mean_of_batches = true, .name = "of batches"}));
    }
  };
  const Kind kind{"", [] { return std::make_shared<Measured>(); }, [] { return images(targets().flatten()); }};
  const auto measured = [&](std::int64_t size, std::shared_ptr<dist::World> world) {
    TrainerOptions options = options_of(kind, changes().front(), size);
    options.world = std::move(world);
    Trainer trainer(std::move(options));
    trainer.fit();
    const auto& metrics = trainer.state().metrics;
    CHECK(std::isfinite(metrics.at("train", "of batches")));
    return std::vector<double>{metrics.at("train", "LossMetric"), metrics.at("train", "CrossEntropy")};
  };
  const std::vector<double> whole = measured(0, nullptr);
  const auto check = [&](const std::vector<double>& found) {
    for (std::size_t i = 0; i < whole.size(); ++i) CHECK(found[i] == doctest::Approx(whole[i]).epsilon(kExact));
  };
  for (const std::int64_t size : kSizes) check(measured(size, nullptr));
  for (const auto& rank : results_in_ranks(3, [&](const auto& world) { return measured(2, world); })) check(rank);
}

TEST_CASE("Virtual shards and divided gradients do, too") {
  const Kind kind = kinds().front();
  const Changes none = changes().front();
  const Shown whole = train(options_of(kind, none, 0));
  for (const bool shards : {true, false})
    for (const Shown& rank : results_in_ranks(2, [&](const auto& world) {
           TrainerOptions options = options_of(kind, none, shards ? 0 : 2);
           if (shards)
             options.distributed.virtual_shards = 4;
           else
             options.distributed.zero_stage = 1;
           return train(std::move(options), world);
         }))
      check_same(rank, whole);
}

TEST_CASE("A mixture of targets that count and of ignored ones weighs what it is made of") {
  // microbatches of 2, whose samples are mixed with each other: (4, 5) and (6, 7), (8, 9), of which 7 is ignored
  TrainerOptions options = options_of(kinds().front(), changes().front(), 2);
  options.algorithms = {algorithms::MixUp({.draw = [](std::int64_t samples) {
    return algorithms::MixUpDraw{0.25, itself(samples).flip(0)};
  }})};
  const std::shared_ptr<Model> model = in_double(classifier());
  const Batch batch = images(targets().flatten());
  const at::Tensor x = batch["input"], y = batch["target"], partner = itself(kSamples).view({-1, 2}).flip(1).flatten();
  const at::Tensor mixed = 0.75 * x + 0.25 * x.index_select(0, partner);
  const at::Tensor logits = model->forward({{"input", mixed}, {"target", y}}).only();
  const auto sum = [&](const at::Tensor& target) {
    return at::cross_entropy_loss(logits, target, {}, at::Reduction::Sum);
  };
  const at::Tensor loss = (0.75 * sum(y) + 0.25 * sum(y.index_select(0, partner))) / y.ne(-100).sum();
  loss.backward();
  const Shown shown = train(std::move(options));
  CHECK(shown.losses.front() == doctest::Approx(loss.item<double>()).epsilon(kSingle));
  std::vector<at::Tensor> expected;
  for (const at::Tensor& parameter : model->parameters()) expected.push_back(parameter.grad().flatten());
  CHECK((shown.gradient - at::cat(expected)).abs().max().item<double>() < kSingle);
}

TEST_CASE("With class weights, smoothing gives the loss and the gradient of label_smoothing of libtorch") {
  const Kind kind = kinds()[1];
  const std::shared_ptr<Model> model = in_double(classifier());
  const Batch batch = kind.batch();
  const at::Tensor loss = at::cross_entropy_loss(model->forward(batch).only(), batch["target"], kinds_weights(),
                                                 at::Reduction::Mean, -100, 0.25);
  loss.backward();
  std::vector<at::Tensor> expected;
  for (const at::Tensor& parameter : model->parameters()) expected.push_back(parameter.grad().flatten());
  for (const std::int64_t size : kSizes) {
    CAPTURE(size);
    const Shown shown = train(options_of(kind, changes()[1], size));
    CHECK(shown.losses.front() == doctest::Approx(loss.item<double>()).epsilon(kSingle));
    CHECK((shown.gradient - at::cat(expected)).abs().max().item<double>() < kSingle);
  }
}

TEST_CASE("Weighing by tokens counts the targets that are not ignored") {
  const auto options = [](bool says, std::int64_t size) {
    const Kind kind{"", [says] { return masked_mean(says); },
                    [] {
                      Batch batch = images(targets().flatten());
                      batch.set("input_ids", at::zeros(kSamples, at::kLong));
                      return batch;
                    }};
    TrainerOptions made = options_of(kind, changes().front(), size);
    made.accumulate_train_batch_on_tokens = true;
    return made;
  };
  for (const bool says : {false, true}) {
    const Shown whole = train(options(says, 0));
    for (const std::int64_t size : kSizes) check_same(train(options(says, size)), whole);
  }
}

TEST_CASE("A batch of ignored targets alone has a loss of 0 and changes no weights, however it is split") {
  const auto changed = [](std::function<void(TrainerOptions&)> add) { return Changes{"", std::move(add)}; };
  using Clipping = algorithms::GradientClippingOptions;
  std::vector<Changes> all = changes();
  for (const auto type :
       {algorithms::ClippingType::NORM, algorithms::ClippingType::VALUE, algorithms::ClippingType::ADAPTIVE})
    all.push_back(changed([type](TrainerOptions& options) {
      options.algorithms = {algorithms::GradientClipping(Clipping{.clipping_type = type, .clipping_threshold = 0.1})};
    }));
  all.push_back(changed([](TrainerOptions& options) { options.algorithms = {algorithms::EMA()}; }));
  all.push_back(changed([](TrainerOptions& options) {
    options.optimizer = optim::adamw({.lr = 0.1});
    options.device_train_microbatch_size = "auto";
  }));
  const Kind kind{"", [] { return classifier(); }, [] { return images(at::full({kSamples}, -100, at::kLong)); }};
  const auto run = [&](const Changes& change, std::int64_t size, std::shared_ptr<dist::World> world) {
    const Warnings warnings;
    TrainerOptions options = options_of(kind, change, size);
    options.world = std::move(world);
    options.max_duration = "2ba";
    options.callbacks.add(callbacks::NaNMonitor());
    Trainer trainer(std::move(options));
    const at::Tensor before = weights_of(trainer).clone();
    trainer.fit();
    CHECK(at::equal(weights_of(trainer), before));
    CHECK(trainer.state().batch_loss["total"].item<double>() == 0);
    CHECK(warnings.say("batch 0 has no target that counts"));
    return warnings.texts.size();
  };
  for (const Changes& change : all)
    for (const std::int64_t size : {0, 4}) {
      CAPTURE(change.name);
      CAPTURE(size);
      CHECK(run(change, size, nullptr) == 1);
    }
  results_in_ranks(3, [&](const auto& world) { return run(changes().front(), 0, world); });
}

TEST_CASE("A weight that is none is an error that says so") {
  struct Wrong : MaskedMean {
    explicit Wrong(double weight) : given(weight) {}
    LossWeight loss_weight(const Batch&) const override { return given; }
    double given;
  };
  for (const double weight : {-1., double{NAN}}) {
    const Kind kind{"", [weight] { return std::make_shared<Wrong>(weight); },
                    [] { return images(targets().flatten()); }};
    const std::string text = error_of([&] { Trainer(options_of(kind, changes().front(), 0)).fit(); });
    CHECK(text.find("Model::loss_weight: must be finite and >= 0, got ") != std::string::npos);
  }
}

TEST_CASE("Ignored targets of which the model has not told are warned of once, where a batch is split") {
  struct Row {
    const char* what;
    bool says;
    std::int64_t size;
    std::size_t warnings;
  };
  for (const auto& [what, says, size, expected] :
       {Row{"split", false, 2, 1}, Row{"whole", false, 0, 0}, Row{"one part", false, 10, 0}, Row{"told", true, 2, 0}}) {
    CAPTURE(what);
    const Kind kind{"", [says] { return masked_mean(says); },
                    [] {
                      Batch batch = images(targets().flatten());
                      batch.set("target",
                                batch["target"].roll(4));  // the mean over nothing is NaN, which is warned of as well
                      return batch;
                    }};
    TrainerOptions options = options_of(kind, changes().front(), size);
    options.max_duration = "3ba";
    options.nan = OnNaN::WARN;
    const Warnings warnings;
    Trainer(std::move(options)).fit();
    CHECK(std::ranges::count_if(warnings.texts, [](const std::string& text) {
            return text.find("let Model::loss_weight return target_weight(batch[\"target\"])") != std::string::npos;
          }) == static_cast<std::ptrdiff_t>(expected));
  }
}

}  // namespace
}  // namespace composer::test::part_weights_test

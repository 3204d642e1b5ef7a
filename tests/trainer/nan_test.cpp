// What a training loss that is NaN does to a fit, by the option `nan`.
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "composer/callbacks/nan_monitor.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"
#include "tests/trainer/fits_in_ranks.h"

namespace composer::test::nan_test {
namespace {

// The sample 9, in batch 2, has a NaN.
Batch data_with_nan() {
  Batch data = tiny_data(16);
  at::Tensor input = data["input"].clone();
  input[9][2] = NAN;
  data.set("input", input);
  return data;
}

TrainerOptions options_with_nan() {
  TrainerOptions options = tiny_options();
  options.device = at::kCPU;
  options.train_dataloader = data::in_memory(data_with_nan(), {.batch_size = 4, .shuffle = false});
  return options;
}

// Its loss is a function of its outputs and of the number of calls.
struct Own : models::Classifier {
  using Loss = std::function<at::Tensor(const at::Tensor& loss, const at::Tensor& outputs)>;
  explicit Own(Loss given) : Classifier(torch::nn::Linear(4, 3), {.num_classes = 3}), loss_of(std::move(given)) {}
  Losses loss(const Outputs& outputs, const Batch& batch) override {
    return loss_of(Classifier::loss(outputs, batch).only(), outputs.only());
  }
  Loss loss_of;
};

TEST_CASE("By default, a fit ends with an error at a loss that is NaN, before the weights are changed") {
  TrainerOptions until_then = options_with_nan();
  until_then.max_duration = "2ba";
  Trainer shorter(std::move(until_then));
  shorter.fit();
  Trainer trainer(options_with_nan());
  const std::string error = error_of([&] { trainer.fit(); });
  CHECK(contains(error, "epoch 0, batch 2"));
  CHECK(contains(error, "the training loss is NaN\nthe batch has it already: \"input\" is "));
  CHECK(contains(error, "1 NaN in row 1"));
  CHECK(contains(error, "\nrow 1 is sample 9\nsamples of the microbatch: 8, 9, 10, 11"));
  CHECK(contains(error, "nan = OnNaN::WARN"));
  CHECK(weights_of(trainer).equal(weights_of(shorter)));
  CHECK(trainer.state().timestamp.batch == 2);
  CHECK(contains(error_of([&] { trainer.fit(); }), "the training loss is NaN"));  // the batch is the same
}

TEST_CASE("With WARN and IGNORE a fit goes on, and all weights become NaN") {
  for (const OnNaN nan : {OnNaN::WARN, OnNaN::IGNORE}) {
    TrainerOptions options = options_with_nan();
    options.nan = nan;
    const Warnings warnings;
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == 4);
    CHECK(weights_of(trainer).isnan().all().item<bool>());
    CHECK(warnings.say("is NaN") == (nan == OnNaN::WARN));
    CHECK(warnings.say("has been NaN since batch 2") == (nan == OnNaN::WARN));
  }
}

TEST_CASE("The error names the operator that made the NaN, also in a model that draws random numbers") {
  // NaN if a number is dropped, which is rare: with other random numbers, none would be.
  const auto of_dropped = [](const at::Tensor& loss, const at::Tensor& outputs) {
    const at::Tensor kept = at::dropout(at::ones_like(outputs), 0.001, /*train=*/true);
    return loss + 0 * kept.log().sum();
  };
  TrainerOptions options = tiny_options();
  options.device = at::kCPU;
  options.model = std::make_shared<Own>(of_dropped);
  options.seed = 3;
  options.max_duration = "4000ba";
  Trainer trainer(std::move(options));
  const std::string error = error_of([&] { trainer.fit(); });
  CHECK(contains(error, "the training loss is NaN\naten::log "));
  CHECK(contains(error, "the infinity became NaN in aten::mul"));
}

TEST_CASE("NaNMonitor, if there is one, finds it first") {
  TrainerOptions options = options_with_nan();
  options.callbacks = {callbacks::NaNMonitor({.folder = ""})};
  CHECK(
      contains(error_of([&] { Trainer(std::move(options)).fit(); }), "NaNMonitor: the training loss \"total\" is NaN"));
}

TEST_CASE("A loss in double precision counts, and one that is infinite does not") {
  for (const bool nan : {true, false}) {
    TrainerOptions options = tiny_options();
    options.device = at::kCPU;
    options.model = std::make_shared<Own>([nan](const at::Tensor& loss, const at::Tensor&) {
      return loss.to(at::kDouble) + (nan ? at::scalar_tensor(NAN) : at::scalar_tensor(INFINITY));
    });
    options.optimizer = optim::sgd({.lr = 1e-30});
    CHECK(contains(error_of([&] { Trainer(std::move(options)).fit(); }), "the training loss is NaN") == nan);
  }
}

TEST_CASE("If one of two ranks has a loss that is NaN, both end with an error") {
  const auto errors = dist::test::errors_in_ranks(2, [](const WorldPointer& world) {
    TrainerOptions options = options_with_nan();
    options.max_duration = "1ep";
    fit_in(world, std::move(options));
  });
  CHECK_FALSE(errors[0].empty());
  CHECK_FALSE(errors[1].empty());
}

}  // namespace
}  // namespace composer::test::nan_test

#include "composer/algorithms/selective_backprop.h"

#include <cmath>
#include <numeric>

#include "composer/core/error.h"
#include "composer/core/run.h"
#include "tests/support/cut_and_resumed.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"
#include "tests/support/tiny_images.h"
#include "tests/support/warnings.h"

namespace composer::test::selective_backprop_test {
namespace {

using algorithms::select_using_loss;
using algorithms::selective_backprop_weights;
using algorithms::SelectiveBackprop;
using algorithms::SelectiveBackpropOptions;
using algorithms::should_selective_backprop;

SelectiveBackpropOptions always() { return {.start = 0, .end = 1, .interrupt = 0}; }

// A run whose model is tiny_image_model(), before its first batch.
struct ImageRun : FakeRun {
  ImageRun() { state.model = Handle<Model>(tiny_image_model()); }
  Batch select(SelectiveBackprop& algorithm, const Batch& batch) {
    state.batch = batch;
    algorithm.apply(Event::AFTER_DATALOADER, state, logger);
    return state.batch;
  }
};

TEST_CASE("should_selective_backprop is for batches between start and end, but for every interrupt-th") {
  struct Row {
    double elapsed;
    std::int64_t batch, interrupt;
    bool selects;
  };
  for (const auto& [elapsed, batch, interrupt, selects] :
       {Row{0.49, 0, 2, false}, Row{0.5, 0, 2, true}, Row{0.6, 1, 2, false}, Row{0.6, 2, 2, true}, Row{0.6, 1, 0, true},
        Row{0.6, 0, 1, false}, Row{0.9, 0, 2, false}}) {
    CAPTURE(elapsed);
    CAPTURE(batch);
    CHECK(should_selective_backprop(elapsed, batch, {.interrupt = interrupt}) == selects);
  }
  CHECK_FALSE(should_selective_backprop(0.6, 0, {.keep = 1}));
}

TEST_CASE("selective_backprop_weights grow with the loss, more so the fewer samples are kept") {
  const std::vector<double> half = selective_backprop_weights(4, 0.5), wanted = {.0625, .1875, .3125, .4375};
  for (std::size_t i = 0; i < 4; ++i) CHECK(half[i] == doctest::Approx(wanted[i]));
  CHECK(selective_backprop_weights(4, 0.25).back() > half.back());
  const std::vector<double> all = selective_backprop_weights(5, 1);
  CHECK(std::accumulate(all.begin(), all.end(), 0.) == doctest::Approx(1));
  CHECK(all.front() == doctest::Approx(all.back()));
}

TEST_CASE("select_using_loss takes positions in the order of the losses") {
  const at::Tensor losses = at::tensor({3., 1., 2., 5., 4.});
  std::int64_t asked = 0;
  const auto largest = [&](const std::vector<double>& weights, std::int64_t n) {
    asked = n;
    return std::vector<std::int64_t>{static_cast<std::int64_t>(weights.size()) - 1, 0};
  };
  CHECK(at::equal(select_using_loss(losses, 0.5, largest), at::tensor({3, 1}, at::kLong)));
  CHECK(asked == 2);
  select_using_loss(losses, 0.1, [&](const auto&, std::int64_t n) {
    asked = n;
    return std::vector<std::int64_t>{0};
  });
  CHECK(asked == 1);
}

TEST_CASE("SelectiveBackprop keeps whole samples of all tensors, without repeating one") {
  ImageRun run;
  SelectiveBackprop algorithm(always());
  Batch batch = tiny_images(8, 4);
  batch.set("number", at::arange(8, at::kLong));
  const Batch got = run.select(algorithm, batch);
  const at::Tensor kept = got["number"];
  CHECK(kept.size(0) == 4);
  CHECK(std::get<0>(at::_unique(kept)).size(0) == 4);
  CHECK(at::equal(got["input"], batch["input"].index_select(0, kept)));
  CHECK(at::equal(got["target"], batch["target"].index_select(0, kept)));
}

TEST_CASE("SelectiveBackprop selects a sample with a large loss more often, by the loss that it is given") {
  ImageRun run;
  SelectiveBackpropOptions options = always();
  options.keep = 0.25;
  options.loss = [](const Outputs&, const Batch& batch) { return batch["target"].to(at::kFloat).neg(); };
  SelectiveBackprop algorithm(options);
  Batch batch = tiny_images(4, 4);
  batch.set("target", at::arange(4, at::kLong));
  const std::vector<double> weights = selective_backprop_weights(4, 0.25);
  constexpr int kDraws = 4000;
  std::vector<double> counts(4);
  for (int i = 0; i < kDraws; ++i) {
    run.state.timestamp = run.state.timestamp.to_next_batch();
    counts[static_cast<std::size_t>(run.select(algorithm, batch)["target"].item<std::int64_t>())] += 1;
  }
  for (std::size_t i = 0; i < 4; ++i) CHECK(counts[i] / kDraws == doctest::Approx(weights[3 - i]).epsilon(0.2));
}

TEST_CASE("SelectiveBackprop shows the model smaller images and trains whole ones") {
  ImageRun run;
  std::vector<std::int64_t> shown;
  SelectiveBackpropOptions options = always();
  options.scale_factor = 0.5;
  options.loss = [&](const Outputs&, const Batch& batch) {
    shown = batch["input"].sizes().vec();
    return at::arange(batch["input"].size(0), at::kFloat);
  };
  SelectiveBackprop algorithm(options);
  const Batch got = run.select(algorithm, tiny_images(4, 8));
  CHECK(shown == std::vector<std::int64_t>{4, 1, 4, 4});
  CHECK(got["input"].sizes() == at::IntArrayRef({2, 1, 8, 8}));
}

TEST_CASE("SelectiveBackprop shows the model microbatches of the size that training has") {
  std::vector<std::int64_t> shown;
  SelectiveBackpropOptions options = always();
  options.loss = [&](const Outputs& outputs, const Batch& batch) {
    shown.push_back(outputs.only().size(0));
    CHECK(batch["number"].size(0) == outputs.only().size(0));
    return batch["number"].to(at::kFloat);
  };
  options.choose = [](const std::vector<double>& weights, std::int64_t) {
    return std::vector<std::int64_t>{static_cast<std::int64_t>(weights.size()) - 1};
  };
  SelectiveBackprop algorithm(options);
  ImageRun run;
  Batch batch = tiny_images(7, 4);
  batch.set("number", at::tensor({4, 1, 9, 2, 0, 3, 5}, at::kLong));
  for (const auto& [size, parts] :
       {std::pair<std::int64_t, std::vector<std::int64_t>>{3, {3, 3, 1}}, {0, {7}}, {8, {7}}}) {
    shown.clear();
    run.state.device_train_microbatch_size = size;
    CHECK(at::equal(run.select(algorithm, batch)["number"], at::tensor({9}, at::kLong)));
    CHECK(shown == parts);
  }
}

TEST_CASE("SelectiveBackprop transforms what it shows the model, and leaves the samples as they are") {
  SelectiveBackpropOptions options = always();
  options.transform = [](Batch& batch) { batch.set("input", batch["input"].to(at::kFloat).div_(255)); };
  SelectiveBackprop algorithm(options);
  ImageRun run;
  Batch batch = tiny_images(4, 4);
  batch.set("input", batch["input"].mul(255).to(at::kByte));
  const Batch got = run.select(algorithm, batch);
  CHECK((got["input"].scalar_type() == at::kByte));
  CHECK(got["input"].size(0) == 2);
}

TEST_CASE("SelectiveBackprop of a batch without samples leaves it as it is") {
  SelectiveBackprop algorithm(always());
  ImageRun run;
  CHECK(
      run.select(algorithm, {{"input", at::zeros({0, 1, 4, 4})}, {"target", at::zeros({0}, at::kLong)}})["input"].size(
          0) == 0);
}

TEST_CASE("SelectiveBackprop that keeps hardly anything takes the sample with the largest loss") {
  SelectiveBackpropOptions options = always();
  options.keep = 1e-6;
  options.loss = [](const Outputs&, const Batch& batch) { return batch["target"].to(at::kFloat); };
  SelectiveBackprop algorithm(options);
  ImageRun run;
  Batch batch = tiny_images(20, 4);
  batch.set("target", at::arange(20, at::kLong));
  CHECK(selective_backprop_weights(20, 1e-6).back() == 1);
  for (int i = 0; i < 10; ++i) {
    run.state.timestamp = run.state.timestamp.to_next_batch();
    CHECK(at::equal(run.select(algorithm, batch)["target"], at::tensor({19}, at::kLong)));
  }
}

TEST_CASE("The indices of the samples of a batch that SelectiveBackprop has made smaller are not known") {
  std::vector<std::size_t> counts;
  TrainerOptions with = tiny_image_options();
  SelectiveBackpropOptions options = always();
  options.end = 0.5;
  with.algorithms = {SelectiveBackprop(options)};
  with.max_duration = "4ba";
  with.callbacks.add(At([&](Event event, const State& state) {
    if (event == Event::AFTER_LOSS) counts.push_back(state.run->sample_indices().size());
  }));
  Trainer(std::move(with)).fit();
  CHECK(counts == std::vector<std::size_t>{0, 0, 4, 4});
}

TEST_CASE("SelectiveBackprop leaves no gradients, and selects by seed and batch") {
  ImageRun run, same;
  run.state.seed = same.state.seed = 17;
  SelectiveBackprop algorithm(always());
  const Batch batch = tiny_images(64, 4);
  const at::Tensor first = run.select(algorithm, batch)["input"];
  CHECK_FALSE(first.requires_grad());
  for (const at::Tensor& parameter : run.state.model->parameters()) CHECK_FALSE(parameter.grad().defined());
  CHECK(at::equal(same.select(algorithm, batch)["input"], first));
  run.state.timestamp = run.state.timestamp.to_next_batch();
  CHECK_FALSE(at::equal(run.select(algorithm, batch)["input"], first));
}

TEST_CASE("SelectiveBackprop warns of a run of epochs in which it never selects") {
  for (const auto& [epochs, warns] : {std::pair{1, true}, {2, false}}) {
    CAPTURE(epochs);
    Warnings warnings;
    TrainerOptions with = tiny_image_options();
    with.algorithms = {SelectiveBackprop()};
    with.max_duration = Time(epochs, TimeUnit::EPOCH);
    Trainer(std::move(with)).fit();
    CHECK(warnings.say("SelectiveBackprop: never selects") == warns);
  }
}

TEST_CASE("A run with SelectiveBackprop that is cut off and resumed ends with the weights of one that is not") {
  check_cut_and_resumed(
      [] {
        TrainerOptions with = tiny_image_options();
        with.algorithms = {SelectiveBackprop(always())};
        return with;
      },
      3);
}

TEST_CASE("SelectiveBackprop misses a tensor at the first batch, though it selects later") {
  TrainerOptions options = tiny_image_options();
  options.algorithms = {SelectiveBackprop({.start = 0.5, .input_key = "image"})};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  CHECK(trainer.state().timestamp.batch == 0);
}

TEST_CASE("SelectiveBackprop refuses a loss of the whole batch, and options that make no sense") {
  ImageRun run;
  SelectiveBackpropOptions options = always();
  options.loss = [](const Outputs&, const Batch&) { return at::zeros({}); };
  SelectiveBackprop algorithm(options);
  CHECK_THROWS_WITH_AS(run.select(algorithm, tiny_images(4, 8)),
                       "SelectiveBackprop: the loss must be one number for each of the 4 samples, got []", ConfigError);
  CHECK_THROWS_WITH_AS(SelectiveBackprop({.start = 0.9, .end = 0.5}),
                       "SelectiveBackprop: start and end must be from 0 to 1, start first, got 0.9 and 0.5",
                       ConfigError);
  CHECK_THROWS_AS(SelectiveBackprop({.keep = 0}), ConfigError);
  CHECK_THROWS_AS(SelectiveBackprop({.scale_factor = 2}), ConfigError);
  CHECK_THROWS_AS(SelectiveBackprop({.interrupt = -1}), ConfigError);
  CHECK_THROWS_AS(SelectiveBackprop({.keep = NAN}), ConfigError);
}

}  // namespace
}  // namespace composer::test::selective_backprop_test

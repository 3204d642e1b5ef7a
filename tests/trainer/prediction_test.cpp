#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/join_batches.h"
#include "composer/data/map_style.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::prediction_test {
namespace {

TEST_CASE("Prediction fires its events, counts from zero each time, and returns outputs on the CPU") {
  auto log = std::make_shared<EventLog>();
  std::vector<std::int64_t> counts;
  TrainerOptions options = tiny_options();
  options.max_duration = std::nullopt;
  options.callbacks = {log, At([&](Event event, const State& state) {
                         if (event == Event::PREDICT_BATCH_END) counts.push_back(state.predict_timestamp.batch);
                         if (event == Event::PREDICT_AFTER_FORWARD) CHECK_FALSE(state.outputs.only().requires_grad());
                       })};
  Trainer trainer(std::move(options));
  for (int i = 0; i < 2; ++i) {
    counts.clear();
    const auto outputs = trainer.predict(tiny_loader(10, 4));
    REQUIRE(outputs.size() == 3);
    CHECK(outputs[2].only().sizes() == at::IntArrayRef{2, 3});
    CHECK(outputs[0].only().device().is_cpu());
    CHECK(counts == std::vector<std::int64_t>{1, 2, 3});
  }
  for (const char* event : {"predict_start", "predict_end"}) CHECK(log->count(event) == 2);
  for (const char* event : {"predict_batch_start", "predict_before_forward", "predict_after_forward"})
    CHECK(log->count(event) == 6);
}

TEST_CASE("Prediction takes a subset, keeps nothing if asked, and refuses nonsense") {
  Trainer trainer(tiny_options());
  CHECK(trainer.predict(tiny_loader(10, 4), {.subset_num_batches = 2}).size() == 2);
  CHECK(trainer.predict(tiny_loader(10, 4), {.return_outputs = false}).empty());
  CHECK_THROWS_AS(trainer.predict(AnyDataSpec()), ConfigError);
  CHECK_THROWS_AS(trainer.predict(tiny_loader(10, 4), {.subset_num_batches = 0}), ConfigError);
}

TEST_CASE("predict_all returns a row for each sample, the same on any number of ranks, also of uneven batches") {
  const at::Tensor inputs = at::rand({13, 4});
  const auto rows_on = [&](int ranks, std::int64_t batch_size) {
    return dist::test::results_in_ranks(ranks, [&](const std::shared_ptr<dist::World>& world) {
      TrainerOptions options = tiny_options();
      options.world = world;
      Trainer trainer(std::move(options));
      return trainer.predict_all(data::in_memory({{"input", inputs}}, {.batch_size = batch_size, .shuffle = false}))
          .only();
    });
  };
  for (const std::int64_t batch_size : {4, 6, 13}) {  // the last batches have 1, 1 and 13 samples
    CAPTURE(batch_size);
    const at::Tensor alone = rows_on(1, batch_size).front();
    CHECK(alone.sizes() == at::IntArrayRef{13, 3});
    for (const int ranks : {2, 3})
      for (const at::Tensor& rows : rows_on(ranks, batch_size)) CHECK(rows.allclose(alone, 1e-5, 1e-6));
  }
}

TEST_CASE("predict_all tells of outputs that have no rows, or rows of different shapes") {
  struct Odd final : Model {
    explicit Odd(bool number) : number_(number) { register_parameter("weight", at::ones({1})); }
    Outputs forward(const Batch& batch) override {
      const at::Tensor& input = batch["input"];
      return number_ ? input.sum() : input.slice(1, 0, input.size(0));
    }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
    bool number_;
  };
  for (const bool number : {true, false}) {
    TrainerOptions options = tiny_options();
    options.model = std::make_shared<Odd>(number);
    options.optimizer = {};
    options.max_duration = std::nullopt;
    options.train_dataloader = {};
    Trainer trainer(std::move(options));
    CHECK(error_of([&] {
            trainer.predict_all(tiny_loader(5, 4));
          }).find(number ? "is one number for the whole batch" : "are [4] Float in one batch and [1] Float") !=
          std::string::npos);
  }
}

TEST_CASE("Outputs in another order than the samples are told, and no others") {
  Trainer trainer(tiny_options());
  const auto warned = [&](const std::shared_ptr<Loader>& loader, const PredictOptions& how) {
    const Warnings warnings;
    trainer.predict(loader, how);
    for (const std::string& text : warnings.texts)
      CHECK(text.find("in another order than that of the data") != std::string::npos);
    return warnings.texts.size();
  };
  const auto by_index = [](bool shuffle) {
    const data::SampleSource source{.size = 8, .get = [](std::int64_t, RandomStream) {
                                      return data::Sample{{"input", at::ones(4)}};
                                    }};
    return data::map_style(source, {.batch_size = 4, .shuffle = shuffle});
  };
  for (const bool shuffle : {false, true}) {
    CAPTURE(shuffle);
    const auto loader = data::in_memory(tiny_data(8), {.batch_size = 4, .shuffle = shuffle});
    CHECK(warned(loader, {}) == shuffle);
    CHECK(warned(by_index(shuffle), {}) == shuffle);
    CHECK(warned(loader, {.return_outputs = false}) == 0);
  }
}

TEST_CASE("predict_all returns the rows in the order of the data, whatever order the loader has, on all ranks") {
  const Batch all = tiny_data(13);
  const at::Tensor lengths = at::tensor({5, 3, 9, 1, 4, 2, 8, 7, 6, 5, 5, 0, 3});
  const data::SampleSource source{.size = 13, .get = [all](std::int64_t i, RandomStream) {
                                    return data::Sample{{"input", all["input"][i]}};
                                  }};
  const auto loader_of = [&](const std::string& kind) -> std::shared_ptr<Loader> {
    if (kind == "shuffled") return data::in_memory(all, {.batch_size = 4});
    if (kind == "joined") return data::join_batches(data::in_memory(all, {.batch_size = 2}), 3);
    return data::map_style(source, {.batch_size = 4, .shuffle = kind == "buckets", .lengths = lengths});
  };
  const at::Tensor expected = Trainer(tiny_options()).predict_all(tiny_loader(13, 4)).only();
  for (const std::string kind : {"shuffled", "joined", "buckets", "sorted"})
    for (const int ranks : {1, 2, 3}) {
      CAPTURE(kind);
      CAPTURE(ranks);
      const auto rows = dist::test::results_in_ranks(ranks, [&](const std::shared_ptr<dist::World>& world) {
        TrainerOptions options = tiny_options();
        options.world = world;
        Trainer trainer(std::move(options));
        return trainer.predict_all(loader_of(kind)).only();
      });
      for (const at::Tensor& one : rows) CHECK(one.allclose(expected, 1e-5, 1e-6));
    }
  Trainer trainer(tiny_options());
  const auto warned = [&](const std::shared_ptr<Loader>& loader, std::int64_t subset) {
    const Warnings warnings;
    trainer.predict_all(loader, subset);
    return warnings.say("predict_all: the loader did not give each sample once") ? 1 : warnings.texts.size() * 10;
  };
  CHECK(warned(loader_of("shuffled"), -1) == 0);
  CHECK(warned(loader_of("sorted"), -1) == 0);
  CHECK(warned(loader_of("shuffled"), 2) == 1);
  CHECK(warned(loader_of("sorted"), 2) == 1);
  CHECK(warned(tiny_loader(13, 4), 2) == 0);
  CHECK(warned(data::in_memory(all, {.batch_size = 4, .weights = at::ones({13})}), -1) == 1);
  const Warnings warnings;
  trainer.predict(loader_of("sorted"));
  CHECK(warnings.say("predict: the loader gives the samples in another order"));
}

TEST_CASE("predict_all refuses outputs whose first dimension is not that of the samples, with both numbers") {
  struct TimeFirst final : Model {
    TimeFirst() { register_parameter("weight", at::ones({1})); }
    Outputs forward(const Batch& batch) override {  // [T, N, 2]
      return at::stack({batch["input"].t(), batch["input"].t()}, -1);
    }
    Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }
  };
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<TimeFirst>();
  options.optimizer = {};
  options.max_duration = std::nullopt;
  options.train_dataloader = {};
  Trainer trainer(std::move(options));
  const std::string error = error_of([&] { trainer.predict_all(tiny_loader(12, 6)); });
  CAPTURE(error);
  CHECK(error.find("the shape [4, 6, 2] for a batch of 6 samples") != std::string::npos);
}

TEST_CASE("Prediction in the middle of an epoch changes nothing in training") {
  TrainerOptions options = tiny_options(), other = tiny_options();
  Trainer with(std::move(options)), without(std::move(other));
  with.fit("2ba");
  with.predict(tiny_loader(6, 3));
  with.fit("2ba");
  without.fit("2ba");
  without.fit("2ba");
  CHECK(weights_of(with).equal(weights_of(without)));
}

}  // namespace
}  // namespace composer::test::prediction_test

#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/metrics/classification.h"
#include "composer/metrics/confusion_matrix.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::evaluation_test {
namespace {

using Batches = std::vector<std::int64_t>;

// The batches after which it evaluates, with 4 (or `per_epoch`) batches of 2 samples an epoch.
Batches evaluated_at(const Interval& interval, const char* max_duration, std::int64_t per_epoch = 4) {
  Batches at;
  TrainerOptions options = tiny_options();
  options.train_dataloader = tiny_loader(2 * per_epoch, 2);
  options.eval_dataloader = tiny_loader(4, 4);
  options.eval_interval = interval;
  options.max_duration = Time::parse(max_duration);
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::EVAL_START) at.push_back(state.timestamp.batch);
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  return at;
}

TEST_CASE("Evaluation is due as Composer has it") {
  CHECK(evaluated_at("1ep", "2ep") == Batches{4, 8});
  CHECK(evaluated_at("4ba", "2ep") == Batches{4, 8});
  CHECK(evaluated_at("3ba", "2ep") == Batches{3, 6, 8});
  CHECK(evaluated_at("3ba", "6ba") == Batches{3, 6});
  CHECK(evaluated_at("1ep", "6ba") == Batches{4, 6});
  CHECK(evaluated_at("5ep", "2ep") == Batches{8});
  CHECK(evaluated_at("0.5dur", "2ep") == Batches{4, 8});
  CHECK(evaluated_at("2sp", "2ep") == Batches{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(evaluated_at("3sp", "2ep") == Batches{2, 3, 5, 6, 8});
  CHECK(evaluated_at("1000sec", "2ep") == Batches{8});
  CHECK(evaluated_at("0ep", "2ep").empty());
  CHECK(evaluated_at("0.35dur", "4ep", 5) == Batches{7, 14, 20});
}

TEST_CASE("A function is asked at the ends of batches, epochs and the fit") {
  std::vector<std::string> asked;
  const Interval interval = [&](Event event, const State&) {
    asked.emplace_back(to_string(event));
    return event == Event::EPOCH_END;
  };
  CHECK(evaluated_at(interval, "1ep", 2) == Batches{2});
  CHECK(asked == std::vector<std::string>{"batch_end", "batch_end", "epoch_end", "fit_end"});
}

TEST_CASE("An evaluator's own interval, subset and metrics go before the trainer's") {
  Batches at;
  TrainerOptions options = tiny_options();
  options.eval_dataloader = {
      {.label = "a", .dataloader = tiny_loader(8, 4), .eval_interval = "2ba", .subset_num_batches = 1},
      {.label = "b", .dataloader = tiny_loader(8, 4), .metrics = Metrics(metrics::MulticlassAccuracy({.top_k = 2}))}};
  options.eval_subset_num_batches = 2;
  std::map<std::string, std::int64_t> batches;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event != Event::EVAL_END) return;
    if (state.dataloader_label == "a") at.push_back(state.timestamp.batch);
    batches[state.dataloader_label] = state.eval_timestamp.batch;
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(at == Batches{2, 4});
  CHECK(batches == std::map<std::string, std::int64_t>{{"a", 1}, {"b", 2}});
  CHECK(trainer.state().metrics.find("a", "CrossEntropy"));
  CHECK_FALSE(trainer.state().metrics.find("b", "CrossEntropy"));
  CHECK_THROWS_WITH_AS(trainer.state().metrics.at("c", "CrossEntropy"), doctest::Contains("a/CrossEntropy"),
                       ConfigError);
}

TEST_CASE("Metric names are searched for, in any case") {
  const auto reported = [](std::optional<std::vector<std::string>> names) {
    TrainerOptions options = tiny_options();
    options.eval_dataloader =
        Evaluator{.label = "e", .dataloader = tiny_loader(4, 4), .metric_names = std::move(names)};
    Trainer trainer(std::move(options));
    trainer.eval();
    const auto& all = trainer.state().metrics.all();
    return all.contains("e") ? all.at("e").size() : 0;
  };
  CHECK(reported(std::nullopt) == 2);
  CHECK(reported(std::vector<std::string>{}) == 0);
  CHECK(reported({{"accuracy"}}) == 1);
  CHECK(reported({{"^Cross", "CURACY$"}}) == 2);
  CHECK_THROWS_AS(reported({{"("}}), ConfigError);
}

TEST_CASE("Metrics are exact over a partial last batch") {
  auto model = tiny_model();
  const auto accuracy = [&](std::int64_t batch_size) {
    TrainerOptions options = tiny_options();
    options.model = model;
    options.eval_dataloader = tiny_loader(13, batch_size);
    Trainer trainer(std::move(options));
    trainer.eval();
    return std::pair(trainer.state().metrics.at("eval", "MulticlassAccuracy"),
                     trainer.state().metrics.at("eval", "CrossEntropy"));
  };
  const auto [whole, loss] = accuracy(13);
  for (std::int64_t size : {1, 2, 3, 4, 5, 6}) {
    const auto [share, mean] = accuracy(size);
    CHECK(share == doctest::Approx(whole));
    CHECK(mean == doctest::Approx(loss));
  }
}

TEST_CASE("eval() takes its own loaders for one call, or the trainer's") {
  auto log = std::make_shared<EventLog>();
  TrainerOptions options = tiny_options();
  options.max_duration = std::nullopt;
  options.eval_dataloader = tiny_loader(8, 4);
  options.callbacks = {log};
  Trainer trainer(std::move(options));
  trainer.eval({.subset_num_batches = 1});
  CHECK(trainer.state().eval_timestamp.batch == 1);
  CHECK(log->count("eval_standalone_start") == 1);
  CHECK(log->count("eval_standalone_end") == 1);
  CHECK(log->count("eval_before_all") == 0);
  trainer.eval({.eval_dataloader = Evaluator{.label = "other", .dataloader = tiny_loader(4, 4)}});
  CHECK(trainer.state().metrics.find("other", "CrossEntropy"));
  trainer.eval();
  CHECK(trainer.state().eval_timestamp.batch == 2);  // its own again
}

TEST_CASE("The metric of an evaluator has what its last evaluation has measured, on all ranks that of all") {
  using metrics::ConfusionMatrix;
  const ConfusionMatrix given({.num_classes = 3});
  const auto check = [&](const std::shared_ptr<dist::World>& world) {
    const Warnings quiet;
    TrainerOptions options = tiny_options();
    options.world = world;
    options.eval_dataloader = Evaluator{.dataloader = tiny_loader(10, 4), .metrics = Metrics(given)};
    Trainer trainer(std::move(options));
    const auto counts = [&](const char* label) {
      return trainer.metric<ConfusionMatrix>(label, "ConfusionMatrix").matrix().sum(1);
    };
    CHECK_THROWS_WITH_AS(counts("eval"), "metrics of eval: \"ConfusionMatrix\" has measured nothing yet", ConfigError);
    trainer.fit();
    CHECK(counts("eval").equal(at::tensor({4.0, 3.0, 3.0})));
    CHECK(trainer.state().metrics.at("eval", "ConfusionMatrix") ==
          doctest::Approx(trainer.metric<Metric>("eval", "ConfusionMatrix").compute().item<double>()));
    trainer.eval();
    CHECK(counts("eval").equal(at::tensor({4.0, 3.0, 3.0})));
    trainer.eval(
        {.eval_dataloader = Evaluator{.label = "test", .dataloader = tiny_loader(4, 4), .metrics = Metrics(given)}});
    CHECK(counts("test").equal(at::tensor({2.0, 1.0, 1.0})));
    CHECK(counts("eval").equal(at::tensor({4.0, 3.0, 3.0})));
    CHECK_THROWS_WITH_AS(counts("train"), "metric(): there is no evaluator \"train\"; there are: test, eval",
                         ConfigError);
    trainer.eval();
    CHECK_THROWS_WITH_AS(counts("test"), "metric(): there is no evaluator \"test\"; there are: eval", ConfigError);
    CHECK_THROWS_WITH_AS(trainer.metric<Metric>("eval", "Accuracy"),
                         "metrics of eval: there is none called \"Accuracy\"; there are: ConfusionMatrix", ConfigError);
    CHECK_THROWS_WITH_AS(trainer.metric<metrics::MulticlassAccuracy>("eval", "ConfusionMatrix"),
                         doctest::Contains("eval/ConfusionMatrix is of another class"), ConfigError);
    return true;
  };
  check(nullptr);
  dist::test::results_in_ranks(2, check);
}

struct WarningLog : c10::WarningHandler {
  void process(const c10::Warning& warning) override { texts.push_back(warning.msg()); }
  std::vector<std::string> texts;
};

TEST_CASE("An evaluator by a label that is taken is warned of, two of one label are refused") {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(4, 4);
  Trainer trainer(std::move(options));
  WarningLog warnings;
  {
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    trainer.eval({.eval_dataloader = tiny_loader(4, 4)});
  }
  REQUIRE(warnings.texts.size() == 1);
  CHECK(warnings.texts.front().find("\"eval\"") != std::string::npos);

  TrainerOptions twice = tiny_options();
  twice.eval_dataloader = {{.label = "a", .dataloader = tiny_loader(4, 4)},
                           {.label = "a", .dataloader = tiny_loader(4, 4)}};
  CHECK_THROWS_AS(Trainer(std::move(twice)), ConfigError);
}

TEST_CASE("Options of evaluation are warned of if there is nothing to evaluate on") {
  const auto warnings_of = [](auto change) {
    TrainerOptions options = tiny_options();
    change(options);
    WarningLog warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    const Trainer trainer(std::move(options));
    return warnings.texts.size();
  };
  CHECK(warnings_of([](TrainerOptions&) {}) == 0);
  CHECK(warnings_of([](TrainerOptions& options) { options.eval_interval = "0ep"; }) == 0);
  CHECK(warnings_of([](TrainerOptions& options) { options.eval_interval = "2ba"; }) == 1);
  CHECK(warnings_of([](TrainerOptions& options) { options.eval_subset_num_batches = 3; }) == 1);
  CHECK(warnings_of([](TrainerOptions& options) {
          options.eval_interval = "2ba";
          options.eval_dataloader = tiny_loader(4, 4);
        }) == 0);
}

TEST_CASE("Several plain loaders are numbered") {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = {tiny_loader(4, 4), tiny_loader(4, 4)};
  Trainer trainer(std::move(options));
  trainer.eval();
  CHECK(trainer.state().metrics.find("eval", "CrossEntropy"));
  CHECK(trainer.state().metrics.find("eval_2", "CrossEntropy"));
}

TEST_CASE("Evaluation leaves the mode, the batch and the active loader as they were") {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(3, 3);
  options.eval_interval = "1ba";
  std::vector<std::int64_t> sizes;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event != Event::BATCH_CHECKPOINT) return;
    sizes.push_back(state.batch.front().size(0));
    CHECK(state.dataloader_label == "train");
    CHECK(state.dataloader_len == 4);
    CHECK(state.model->is_training());
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(sizes == std::vector<std::int64_t>{4, 4, 4, 4});
  trainer.state().model->eval();
  trainer.eval();
  CHECK_FALSE(trainer.state().model->is_training());
}

TEST_CASE("A part of the model that was frozen by eval() stays so after an evaluation") {
  TrainerOptions options = tiny_options();
  const std::shared_ptr<torch::nn::Module> part = options.model->children().at(0);
  options.eval_dataloader = tiny_loader(3, 3);
  options.eval_interval = "1ba";
  int seen = 0;
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_START && state.timestamp.batch == 0) part->eval();
    if (event != Event::BATCH_CHECKPOINT) return;
    ++seen;
    CHECK_FALSE(part->is_training());
    CHECK(state.model->is_training());
  })};
  Trainer(std::move(options)).fit();
  CHECK(seen == 4);
}

TEST_CASE("After an exception in evaluation the training loader is active again") {
  TrainerOptions options = tiny_options();
  options.eval_dataloader = tiny_loader(3, 3);
  options.callbacks = {At([](Event event, const State&) {
    if (event == Event::EVAL_BATCH_END) throw std::runtime_error("boom");
  })};
  Trainer trainer(std::move(options));
  CHECK_THROWS_AS(trainer.fit(), RunError);
  CHECK(trainer.state().dataloader_label == "train");
  CHECK(trainer.state().model->is_training());
}

TEST_CASE("A loader may serve for training and evaluation") {
  auto shared = tiny_loader(16, 4);
  const auto train = [](std::shared_ptr<Loader> loader, std::shared_ptr<Loader> eval) {
    TrainerOptions options = tiny_options();
    options.train_dataloader = std::move(loader);
    options.eval_dataloader = std::move(eval);
    options.eval_interval = "1ba";
    Trainer trainer(std::move(options));
    trainer.fit();
    CHECK(trainer.state().timestamp.batch == 4);
    return weights_of(trainer);
  };
  CHECK(train(shared, shared).equal(train(tiny_loader(16, 4), tiny_loader(16, 4))));
}

}  // namespace
}  // namespace composer::test::evaluation_test

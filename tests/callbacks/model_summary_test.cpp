#include "composer/callbacks/model_summary.h"

#include <string>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/loggers/file_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"

namespace composer::model_summary_test {
namespace {

using callbacks::ModelSummary;
using callbacks::ModelSummaryOptions;

struct Tables final : LoggerDestination {
  void log_table(std::string_view key, const LogTable& table, std::int64_t step, const State&) override {
    CHECK(key == "model_summary");
    CHECK(step == 0);
    all.push_back(table);
  }
  std::vector<LogTable> all;
};

TrainerOptions with(const std::shared_ptr<Tables>& tables, ModelSummaryOptions summary = {}) {
  TrainerOptions options = test::tiny_options();
  options.callbacks = {ModelSummary(std::move(summary))};
  options.loggers = {tables};
  return options;
}

std::string row_text(const std::vector<LogValue>& row) {
  std::string text;
  for (const LogValue& value : row)
    text += std::holds_alternative<std::string>(value) ? std::get<std::string>(value) + ' '
                                                       : join(std::get<std::int64_t>(value), ' ');
  return text;
}

TEST_CASE("ModelSummary logs each module and the whole model once, when the run begins") {
  const auto tables = std::make_shared<Tables>();
  {
    Trainer trainer(with(tables));
    CHECK(tables->all.empty());
    trainer.fit();
    trainer.fit("1ep");
  }
  REQUIRE(tables->all.size() == 1);
  const LogTable& table = tables->all.front();
  CHECK(table.columns == std::vector<std::string>{"layer", "type", "parameters", "trainable"});
  REQUIRE(table.rows.size() == 2);
  CHECK(row_text(table.rows[0]) == "module Linear 15 15 ");
  CHECK(row_text(table.rows[1]) == "(all) Classifier 15 15 ");
}

TEST_CASE("ModelSummary of an example has shapes and FLOPs, and training is as without it") {
  const auto tables = std::make_shared<Tables>();
  const auto weights = [&](bool summarizes) {
    TrainerOptions options = with(tables, {.example = test::tiny_data(2)});
    if (!summarizes) options.callbacks = {};
    options.model = test::model_with_memory();
    options.seed = 3;
    Trainer trainer(std::move(options));
    trainer.fit();
    return test::weights_of(trainer).clone();
  };
  CHECK(weights(true).equal(weights(false)));
  REQUIRE(tables->all.size() == 1);
  const LogTable& table = tables->all.front();
  CHECK(table.columns == std::vector<std::string>{"layer", "type", "parameters", "trainable", "output", "FLOPs"});
  bool has_linear = false;
  for (const auto& row : table.rows) has_linear |= test::contains(row_text(row), "Linear 15 15 [2, 3] 48");
  CHECK(has_linear);
}

TEST_CASE("ModelSummary leaves out what is deeper, and a resumed run logs it no more") {
  const test::Folder folder;
  const auto tables = std::make_shared<Tables>();
  const auto run = [&](const char* duration) {
    TrainerOptions options = with(tables, {.depth = 1});
    options.model = test::model_with_memory();
    options.save_folder = folder / "ck";
    options.max_duration = Time::parse(duration);
    Trainer(std::move(options)).fit();
  };
  run("1ep");
  REQUIRE(tables->all.size() == 1);
  CHECK(tables->all.front().rows.size() == 2);
  run("2ep");
  CHECK(tables->all.size() == 1);
  CHECK_THROWS_WITH_AS(ModelSummary({.depth = 0}), "ModelSummary: depth must be >= 1, got 0", ConfigError);
}

TEST_CASE("A log file has the summary of ModelSummary") {
  const test::Folder folder;
  TrainerOptions options = test::tiny_options();
  options.callbacks = {ModelSummary()};
  options.loggers = {loggers::FileLogger({.path = folder / "log.txt"})};
  Trainer(std::move(options)).fit();
  CHECK(test::contains(test::text_of(folder / "log.txt"), R"([table][batch=0]: model_summary: {"columns":["layer",)"));
}

}  // namespace
}  // namespace composer::model_summary_test

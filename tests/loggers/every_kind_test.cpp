// Every kind of record at every logger: it is written, or stands in the list of those that the logger leaves out. A new
// kind, or a new logger, is decided about here.
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <variant>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/log_records.h"
#include "composer/core/on.h"
#include "composer/core/record.h"
#include "composer/loggers/console_logger.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/file_logger.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/loggers/registry.h"
#include "composer/loggers/remote_uploader.h"
#include "composer/loggers/slack_logger.h"
#include "composer/loggers/tensorboard_logger.h"
#include "composer/loggers/wandb_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/http_server.h"
#include "tests/support/text.h"
#include "tests/support/tiny.h"

namespace composer::loggers::every_kind_test {
namespace {

namespace fs = std::filesystem;
using composer::test::contains;
using composer::test::Folder;
using composer::test::text_of;
using composer::test::write_text;

using Kinds = std::set<std::string>;

// The compiler asks for a new one: -Wswitch here, and the sizes below.
std::string name_of(Record::Kind kind) {
  switch (kind) {
    case Record::Kind::METRICS:
      return "metrics";
    case Record::Kind::HYPERPARAMETERS:
      return "hyperparameters";
    case Record::Kind::TRACES:
      return "traces";
    case Record::Kind::CONTENT:
      return "content";
  }
  return {};
}
std::string name_of(const LogImages&) { return "images"; }
std::string name_of(const LogTable&) { return "table"; }
std::string name_of(const LogHistogram&) { return "histogram"; }
std::string name_of(const LogFile&) { return "file"; }

std::vector<LogContent> contents(const fs::path& file) {
  std::vector<LogContent> all = {LogImages{.images = at::zeros({1, 4, 4})}, LogTable{.columns = {"a"}, .rows = {{1.0}}},
                                 LogHistogram::of(std::vector<double>{1, 2}, std::vector<double>{0, 1, 2}),
                                 LogFile{.path = file, .name = "seenfile.txt"}};
  REQUIRE(all.size() == std::variant_size_v<LogContent>);
  return all;
}

Kinds all_kinds(const fs::path& file) {
  Kinds all;
  for (const auto kind : {Record::Kind::METRICS, Record::Kind::HYPERPARAMETERS, Record::Kind::TRACES})
    all.insert(name_of(kind));
  for (const LogContent& content : contents(file))
    all.insert(std::visit([](const auto& one) { return name_of(one); }, content));
  return all;
}

// What a logger has written anywhere.
struct Output {
  Folder folder;
  std::ostringstream stream;
  test::HttpServer server{[](const test::HttpCall&) { return test::HttpReply{200, "ok"}; }};
  std::shared_ptr<InMemoryLogger> memory;

  std::string all() const {
    std::string text = stream.str();
    for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
      text += entry.path().lexically_relative(folder.path()).string() + '\n';
      if (entry.is_regular_file()) text += text_of(entry.path());
    }
    for (const test::HttpCall& call : server.calls()) text += call.body;
    if (!memory) return text;
    for (const std::string& key : memory->keys()) text += key + '\n';
    for (const auto& [key, value] : memory->hyperparameters()) text += key + '\n';
    return text;
  }
};

struct OfLogger {
  std::function<void(Loggers& to, Output& output)> add;
  Kinds left_out;
};

const Kinds kAllContent = {"images", "table", "histogram", "file"};

Kinds with(Kinds kinds, const Kinds& more) {
  kinds.insert(more.begin(), more.end());
  return kinds;
}

// By the names in the registry. What can be turned on is.
std::map<std::string, OfLogger> of_loggers() {
  const auto in = [](const Output& output, const char* name) { return (output.folder / name).string(); };
  return {
      {"console",
       {[](Loggers& to, Output& output) { to.add(ConsoleLogger({.stream = output.stream, .log_traces = true})); },
        kAllContent}},
      {"csv",
       {[=](Loggers& to, Output& output) { to.add(CsvLogger({.path = in(output, "log.csv")})); },
        with({"hyperparameters", "traces"}, kAllContent)}},
      {"file",
       {[=](Loggers& to, Output& output) { to.add(FileLogger({.path = in(output, "log.txt"), .log_traces = true})); },
        {"images", "histogram", "file"}}},
      {"in_memory",
       {[](Loggers& to, Output& output) { to.add(output.memory = std::make_shared<InMemoryLogger>()); },
        with({"traces"}, kAllContent)}},
      {"json_lines",
       {[=](Loggers& to, Output& output) { to.add(JsonLinesLogger({.path = in(output, "log.jsonl")})); },
        with({"traces"}, kAllContent)}},
      {"mlflow",
       {[=](Loggers& to, Output& output) {
          to.add(MLFlowLogger({.tracking_uri = in(output, "mlruns"), .log_artifacts = true}));
        },
        {"traces"}}},
      {"progress_bar",
       {[](Loggers& to, Output& output) { to.add(ProgressBar({.stream = output.stream})); },
        with({"hyperparameters", "traces"}, kAllContent)}},
      {"remote_uploader",
       {[=](Loggers& to, Output& output) { to.add(RemoteUploader({.uri = "file://" + in(output, "up")})); },
        {"metrics", "hyperparameters", "traces", "images", "table", "histogram"}}},
      {"slack",
       {[](Loggers& to, Output& output) {
          to.add(SlackLogger({.include_keys = {".*seen"}, .webhook_url = output.server.url() + "/hook"}));
        },
        with({"traces"}, kAllContent)}},
      {"tensorboard",
       {[=](Loggers& to, Output& output) { to.add(TensorBoardLogger({.folder = in(output, "board")})); },
        {"traces", "file"}}},
      {"wandb",
       {[=](Loggers& to, Output& output) {
          to.add(WandBLogger({.folder = in(output, "runs"), .log_artifacts = true}));
        },
        {"traces"}}},
  };
}

// Logs each kind once, at a key that names it.
void log_all(Logger& to, const fs::path& file) {
  to.log_metrics({{"metrics/train/seenmetrics", 1.0}});
  const LogEntry trace{"seentraces", 1.0};
  to.log_traces(std::span(&trace, 1));
  for (const LogContent& content : contents(file))
    std::visit([&](const auto& one) { to.log("seen" + name_of(one), one); }, content);
}

TEST_CASE("Every logger writes every kind of record, but for those that it is said to leave out") {
  const Folder elsewhere;
  const fs::path file = write_text(elsewhere / "content", "one");
  const std::map<std::string, OfLogger> cases = of_loggers();
  for (const std::string& name : registry().names()) {
    CAPTURE(name);
    REQUIRE(cases.contains(name));
    const auto& [add, left_out] = cases.at(name);
    Output output;
    {
      TrainerOptions options = composer::test::tiny_options();
      options.auto_log_hparams = false;
      add(options.loggers, output);
      options.callbacks.add(on(Event::FIT_START, [](const State&, Logger& to) {
        to.log_hyperparameters({{"seenhyperparameters", 1.0}});
      }));
      options.callbacks.add(on(Event::BATCH_END, [&](const State& state, Logger& to) {
        if (state.timestamp.batch == 2) log_all(to, file);
      }));
      Trainer trainer(std::move(options));
      trainer.fit();
      trainer.close();
    }
    const std::string written = output.all();
    for (const std::string& kind : all_kinds(file)) {
      CAPTURE(kind);
      CHECK(contains(written, "seen" + kind) == !left_out.contains(kind));
    }
  }
}

}  // namespace
}  // namespace composer::loggers::every_kind_test

// What does each logger cost the thread that trains, and all threads, for what is logged of one batch?
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "benchmarks/bench.h"
#include "benchmarks/server_process.h"
#include "composer/core/state.h"
#include "composer/loggers/console_logger.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/file_logger.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/progress_bar.h"
#include "composer/loggers/slack_logger.h"
#include "composer/loggers/tensorboard_logger.h"
#include "composer/loggers/wandb_logger.h"

namespace composer::bench {
namespace {

namespace fs = std::filesystem;

class Bench {
 public:
  using Loggers = std::vector<std::shared_ptr<LoggerDestination>>;
  Bench(std::string label, Loggers to, bool with_callbacks)
      : name(std::move(label)),
        destinations_(std::move(to)),
        with_callbacks_(with_callbacks),
        logger_(state_, pointers()) {
    state_.max_duration = "100000ep";
  }
  ~Bench() {
    for (const auto& destination : destinations_) destination->close(state_, logger_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Measures microseconds of this thread and of the process for each batch. Everything is written before the end.
  void measure(int batches) {
    const double thread = microseconds(CLOCK_THREAD_CPUTIME_ID), process = microseconds(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < batches; ++i) log_batch();
    thread_us.push_back((microseconds(CLOCK_THREAD_CPUTIME_ID) - thread) / batches);
    logger_.flush();
    process_us.push_back((microseconds(CLOCK_PROCESS_CPUTIME_ID) - process) / batches);
  }

  const std::string name;
  std::vector<double> thread_us, process_us;

 private:
  std::vector<LoggerDestination*> pointers() const {
    std::vector<LoggerDestination*> pointers;
    pointers.reserve(destinations_.size());
    for (const auto& destination : destinations_) pointers.push_back(destination.get());
    return pointers;
  }

  void log_batch() {
    const Timestamp& now = state_.timestamp;
    logger_.log_metrics({{"time/batch", now.batch},
                         {"time/sample", now.sample},
                         {"time/batch_in_epoch", now.batch_in_epoch},
                         {"time/sample_in_epoch", now.sample_in_epoch}});
    logger_.log_metrics({{"trainer/device_train_microbatch_size", std::int64_t{32}}});
    logger_.log_metrics({{"loss/train/total", loss_}});
    logger_.log_metrics({{"metrics/train/MulticlassAccuracy", accuracy_}});
    if (with_callbacks_) log_callbacks();
    for (const auto& destination : destinations_) destination->run_event(Event::BATCH_END, state_, logger_);
    state_.timestamp = now.to_next_batch(32, 0, Seconds(0.01));
  }

  // Logs the values of SpeedMonitor, LRMonitor, MemoryMonitor and RuntimeEstimator.
  void log_callbacks() {
    const double x = 1e-4 * static_cast<double>(state_.timestamp.batch);
    logger_.log_metrics({{"throughput/batches_per_sec", 100 + x},
                         {"throughput/samples_per_sec", 3200 + x},
                         {"throughput/device/batches_per_sec", 100 + x},
                         {"throughput/device/samples_per_sec", 3200 + x}});
    logger_.log_metrics({{"throughput/flops_per_sec", 5e9 + x}, {"throughput/device/flops_per_sec", 5e9 + x}});
    logger_.log_metrics({{"time/train", x}, {"time/val", 0.0}, {"time/total", x}});
    logger_.log_metrics({{"lr-SGD/group0", 0.1 + x}});
    logger_.log_metrics({{"memory/current_resident_mem", 0.51234}, {"memory/peak_resident_mem", 0.61234}});
    logger_.log_metrics({{"time/remaining_estimate", 1e3 - x}});
  }

  const Loggers destinations_;
  const bool with_callbacks_;
  const at::Tensor loss_ = at::full({}, 0.25), accuracy_ = at::full({}, 0.5);
  State state_;
  Logger logger_;
};

std::vector<std::pair<std::string, Bench::Loggers>> all_loggers(const fs::path& folder, const std::string& server,
                                                                std::ostream& nowhere) {
  using namespace loggers;
  std::vector<std::pair<std::string, Bench::Loggers>> all = {{"no logger", {}}};
  const auto add = [&]<class T>(const char* name, T logger) {
    all.emplace_back(name, Bench::Loggers{std::make_shared<T>(std::move(logger))});
  };
  // Measures twice: each logger alone, and all together.
  for (const std::string part : {"a", "b"}) {
    const auto path = [&](const char* name) { return (folder / part / name).string(); };
    add("console", ConsoleLogger({.stream = nowhere}));
    add("csv", CsvLogger({.path = path("a.csv")}));
    add("file", FileLogger({.path = path("a.txt")}));
    add("in_memory", InMemoryLogger());
    add("json_lines", JsonLinesLogger({.path = path("a.jsonl")}));
    add("mlflow, folder", MLFlowLogger({.tracking_uri = path("runs")}));
    add("mlflow, server", MLFlowLogger({.tracking_uri = server}));
    add("progress_bar", ProgressBar({.stream = nowhere}));
    add("slack", SlackLogger({.include_keys = {".*"}, .log_interval = "100ba", .webhook_url = server + "/slack"}));
    add("tensorboard", TensorBoardLogger({.folder = path("board")}));
    add("wandb", WandBLogger({.folder = path("wandb")}));
  }
  Bench::Loggers together;
  for (std::size_t count = all.size() / 2; count > 0; --count) {
    together.push_back(all.back().second.front());
    all.pop_back();
  }
  all.emplace_back("all", std::move(together));
  return all;
}

void measure_loggers(const Options& options, const fs::path& folder, const std::string& server, bool with_callbacks,
                     nlohmann::ordered_json& results) {
  const std::string group = with_callbacks ? "20 values in 10 records" : "7 values in 4 records";
  if (group.find(options.only) == std::string::npos) return;
  std::ofstream nowhere("/dev/null");
  std::vector<std::unique_ptr<Bench>> all;
  for (auto& [name, logger] : all_loggers(folder / group, server, nowhere))
    all.push_back(std::make_unique<Bench>(name, std::move(logger), with_callbacks));

  constexpr int kBatches = 1000;
  const int rounds = std::max(3, static_cast<int>(20 * options.effort));
  for (int round = -1; round < rounds; ++round)
    for (const auto& bench : all) {
      bench->measure(kBatches);
      if (round >= 0) continue;
      bench->thread_us.clear();
      bench->process_us.clear();
    }
  std::printf("%s: %d rounds of %d batches\n%-16s %24s %24s\n", group.c_str(), rounds, kBatches, "",
              "us a batch, this thread", "us a batch, all threads");
  for (const auto& bench : all) {
    const double thread = median(bench->thread_us), process = median(bench->process_us);
    std::printf("  %-14s %24.3f %24.3f\n", bench->name.c_str(), thread, process);
    results[group + ", " + bench->name] = {{"value", thread}, {"unit", "us"}};
    results[group + ", " + bench->name + ", all threads"] = {{"value", process}, {"unit", "us"}};
  }
  std::printf("\n");
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) {
  const composer::bench::Options options = composer::bench::parse(argc, argv);
  const composer::bench::ServerProcess server;
  std::string folder = (std::filesystem::temp_directory_path() / "bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for temporary files");
  nlohmann::ordered_json results;
  for (const bool with_callbacks : {false, true})
    composer::bench::measure_loggers(options, folder, server.url(), with_callbacks, results);
  composer::bench::write_json(options.json, results);
  std::filesystem::remove_all(folder);
}

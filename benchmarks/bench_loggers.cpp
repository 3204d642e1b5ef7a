// What does each logger cost the thread that trains, for what a trainer logs of one batch?
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "benchmarks/bench.h"
#include "composer/core/state.h"
#include "composer/loggers/csv_logger.h"
#include "composer/loggers/file_logger.h"
#include "composer/loggers/in_memory_logger.h"
#include "composer/loggers/json_lines_logger.h"
#include "composer/loggers/tensorboard_logger.h"

namespace composer::bench {
namespace {

namespace fs = std::filesystem;

class Bench {
 public:
  using Loggers = std::vector<std::shared_ptr<LoggerDestination>>;
  Bench(std::string label, Loggers to)
      : name(std::move(label)), destinations_(std::move(to)), logger_(state_, pointers()) {}
  ~Bench() {
    for (const auto& destination : destinations_) destination->close(state_, logger_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // Microseconds of this thread and of the process for each batch. All is written before the end.
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
    state_.timestamp = now.to_next_batch(32, 0, Seconds(0.01));
  }

  const Loggers destinations_;
  const at::Tensor loss_ = at::full({}, 0.25), accuracy_ = at::full({}, 0.5);
  State state_;
  Logger logger_;
};

void measure_loggers(const Options& options, const fs::path& folder) {
  std::vector<std::unique_ptr<Bench>> all;
  const auto add = [&]<class T>(std::string name, T destination) {
    all.push_back(
        std::make_unique<Bench>(std::move(name), Bench::Loggers{std::make_shared<T>(std::move(destination))}));
  };
  all.push_back(std::make_unique<Bench>("no logger", Bench::Loggers()));
  add("in_memory", loggers::InMemoryLogger());
  add("json_lines", loggers::JsonLinesLogger({.path = folder / "a.jsonl"}));
  add("file", loggers::FileLogger({.path = folder / "a.txt"}));
  add("csv", loggers::CsvLogger({.path = folder / "a.csv"}));
  add("tensorboard", loggers::TensorBoardLogger({.folder = folder / "board"}));
  all.push_back(std::make_unique<Bench>(
      "last four",
      Bench::Loggers{
          std::make_shared<loggers::JsonLinesLogger>(loggers::JsonLinesLoggerOptions{.path = folder / "b.jsonl"}),
          std::make_shared<loggers::FileLogger>(loggers::FileLoggerOptions{.path = folder / "b.txt"}),
          std::make_shared<loggers::CsvLogger>(loggers::CsvLoggerOptions{.path = folder / "b.csv"}),
          std::make_shared<loggers::TensorBoardLogger>(loggers::TensorBoardLoggerOptions{.folder = folder / "more"})}));

  constexpr int kBatches = 1000;
  const int rounds = std::max(3, static_cast<int>(40 * options.effort));
  for (int round = -1; round < rounds; ++round)
    for (const auto& bench : all) {
      bench->measure(kBatches);
      if (round >= 0) continue;
      bench->thread_us.clear();
      bench->process_us.clear();
    }
  nlohmann::ordered_json results;
  std::printf("7 values in 4 records: %d rounds of %d batches\n%-16s %24s %24s\n", rounds, kBatches, "",
              "us a batch, this thread", "us a batch, all threads");
  for (const auto& bench : all) {
    std::printf("  %-14s %24.3f %24.3f\n", bench->name.c_str(), median(bench->thread_us), median(bench->process_us));
    results["log a batch, " + bench->name] = {{"value", median(bench->thread_us)}, {"unit", "us"}};
  }
  write_json(options.json, results);
}

}  // namespace
}  // namespace composer::bench

int main(int argc, char** argv) {
  const composer::bench::Options options = composer::bench::parse(argc, argv);
  std::string folder = (std::filesystem::temp_directory_path() / "bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder for temporary files");
  composer::bench::measure_loggers(options, folder);
  std::filesystem::remove_all(folder);
}

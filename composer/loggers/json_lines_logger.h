#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "composer/core/export.h"
#include "composer/core/logger.h"
#include "composer/core/time.h"

namespace composer::loggers {

// What to do when a line cannot be written, say because the disk is full.
enum class LogFailure : std::uint8_t {
  CONTINUE,  // warns, drops lines until writing works again, and says at the end how many are missing
  FAIL,      // the run ends with the error, at the next call
};

struct JsonLinesLoggerOptions {
  std::string path = "{run_name}/metrics.jsonl";  // {run_name} is replaced; missing folders are made
  bool append = false;                            // to what is there: for a run that resumes
  bool overwrite = false;                         // what is there; without both, an existing file is an error
  Seconds flush_interval{1};                      // >= 0; what is logged is in the file after that, and at EPOCH_END
  LogFailure on_failure = LogFailure::CONTINUE;
};

// Writes one JSON object a line for each call: {"step": 12, "epoch": 0, "batch": 12, "time": 3.5, "loss/train/total":
// 0.25}, where time is seconds of training. NaN and infinities are the texts "nan", "inf" and "-inf"; a metric with one
// of those four names gets "metric/" in front. Hyperparameters are {"hyperparameters": {...}}.
//
// A background thread reads what is on a GPU, and writes; training waits for it only with 65,536 calls to write. The
// file is opened at INIT: throws ConfigError if that fails. A run that resumes opens it at AFTER_LOAD: if it is the log
// that the checkpoint was written with, by its contents, what was logged after the checkpoint is cut off and the log is
// continued; any other file is treated as by a new run. The log is synced before a checkpoint is written.
class COMPOSER_EXPORT JsonLinesLogger final : public LoggerDestination {
 public:
  explicit JsonLinesLogger(JsonLinesLoggerOptions options = {});
  ~JsonLinesLogger() override;
  JsonLinesLogger(JsonLinesLogger&&) noexcept;

  // Returns when everything logged so far is in the file.
  void flush() override;

  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state) override;
  void log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state) override;
  void init(const State& state, Logger& logger) override;
  void after_load(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  struct Writer;
  Writer& open(const State& state);
  void open_as_new(bool again);
  JsonLinesLoggerOptions options_;
  std::string written_;  // the path that this logger opened last
  std::unique_ptr<Writer> writer_;
};

}  // namespace composer::loggers

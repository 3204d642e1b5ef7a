#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/logger.h"
#include "composer/core/time.h"

namespace composer::loggers {

// What to do when a line cannot be written, for example because the disk is full.
enum class LogFailure : std::uint8_t {
  CONTINUE,  // warn, drop lines until writing works again, and report at the end how many are missing
  FAIL,      // the next call throws the error, which ends the run
};

struct JsonLinesLoggerOptions {
  std::string path = "{run_name}/metrics.jsonl";  // {run_name} is replaced; missing folders are made
  bool append = false;                            // append to an existing file
  bool overwrite = false;                         // replace an existing file; with neither, another run's is an error
  Seconds flush_interval{1};  // >= 0; longest time until a record is in the file; EPOCH_END also flushes
  LogFailure on_failure = LogFailure::CONTINUE;
};

// Writes one line of JSON for each call: {"step": 12, "epoch": 0, "batch": 12, "time": 3.5, "loss/train/total":
// 0.25}, where time is in seconds of training. NaN and infinities become the texts "nan", "inf" and "-inf". A metric
// with one of the first four names gets the prefix "metric/". Hyperparameters are {"run_name": "r", "hyperparameters":
// {...}}, without a name in a run that has none.
//
// A background thread reads GPU tensors and writes; training waits for it only while 65,536 calls are pending. The file
// is opened at INIT; throws ConfigError if that fails. The log is synced before a checkpoint is written.
//
// A run that is resumed or can be resumed changes an existing file at FIT_START at the earliest, when no other process
// trains the run. Until then records are held in memory; if no fit follows, they are not written, and a warning says
// so. If the content of the file is that of the log at the checkpoint, lines logged after the checkpoint are cut off
// and the log is continued. If the run starts from scratch and the file contains its run_name, an earlier process of
// the run wrote it: that file is renamed, with a number appended. Any other file is treated as by a new run.
class COMPOSER_EXPORT JsonLinesLogger final : public LoggerDestination {
 public:
  explicit JsonLinesLogger(JsonLinesLoggerOptions options = {});
  explicit JsonLinesLogger(EmptyOptions) : JsonLinesLogger() {}
  ~JsonLinesLogger() override;
  JsonLinesLogger(JsonLinesLogger&&) noexcept;

  // Returns when everything logged so far is in the file, unless a run that resumes keeps it until FIT_START.
  void flush() override;

  void log_metrics(std::span<const LogEntry> metrics, std::int64_t step, const State& state) override;
  void log_hyperparameters(std::span<const LogEntry> hyperparameters, const State& state) override;
  void init(const State& state, Logger& logger) override;
  void after_load(const State& state, Logger& logger) override;
  void fit_start(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  struct Writer;
  Writer& open(const State& state);
  void open_as_new(bool again);
  void open_own();
  bool waits_for_fit(const State& state) const;
  JsonLinesLoggerOptions options_;
  std::string written_;  // the path opened last
  std::unique_ptr<Writer> writer_;
};

}  // namespace composer::loggers

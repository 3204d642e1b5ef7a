#pragma once
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"
#include "composer/loggers/line_file_logger.h"

namespace composer::loggers {

struct JsonLinesLoggerOptions {
  // Path of the file. {run_name} and {rank} are replaced; missing folders are made.
  std::string path = "{run_name}/metrics.jsonl";
  bool append = false;        // appends to an existing file that no other logger writes
  bool overwrite = false;     // replaces an existing file; with neither option, another run's file is an error
  Seconds flush_interval{1};  // 0 to 86,400 s; longest time until a line is in the file
  LogFailure on_failure = LogFailure::CONTINUE;  // if writing fails. CONTINUE: warn and count; FAIL: end the run
  WhenFull when_full = WhenFull::WAIT;           // while 65,536 records wait: WAIT, DROP_NEWEST or DROP_OLDEST
};

// Writes one line of JSON for each call: {"step": 12, "epoch": 0, "batch": 12, "time": 3.5, "loss/train/total": 0.25},
// where time is in seconds of training. NaN and infinities become the texts "nan", "inf" and "-inf". A metric with one
// of the first four names gets the prefix "metric/". Hyperparameters become {"run_name": "r", "hyperparameters":
// {...}}, without run_name if the run has none.
//
// A background thread reads GPU tensors and writes; training waits for it only while 65,536 calls are pending. See
// LineFileLogger for opening, resuming and checkpoints. The file is that of an earlier process of the run if it
// contains its run_name.
class COMPOSER_EXPORT JsonLinesLogger final : public LineFileLogger {
 public:
  explicit JsonLinesLogger(JsonLinesLoggerOptions options = {});
  explicit JsonLinesLogger(EmptyOptions) : JsonLinesLogger() {}
  ~JsonLinesLogger() override;
  JsonLinesLogger(JsonLinesLogger&&) noexcept;

 private:
  std::unique_ptr<LineFormat> make_format(const State& state) override;
};

}  // namespace composer::loggers

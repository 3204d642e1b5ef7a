#pragma once
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"
#include "composer/loggers/line_file_logger.h"

namespace composer::loggers {

class OutputCapture;

struct FileLoggerOptions {
  // Path of the file. {run_name} and {rank} are replaced; missing folders are made.
  std::string path = "{run_name}/logs-rank{rank}.txt";
  bool append = false;          // appends to an existing file that no other logger writes
  bool overwrite = false;       // replaces an existing file; with neither option, another run's file is an error
  bool log_traces = true;       // also writes which algorithms ran
  bool capture_stdout = false;  // also writes what the program writes to std::cout, from INIT to close()
  bool capture_stderr = false;  // also writes what the program writes to std::cerr and std::clog
  Seconds flush_interval{1};    // 0 to 86,400 s; longest time until a line is in the file
  LogFailure on_failure = LogFailure::CONTINUE;  // if writing fails. CONTINUE: warn and count; FAIL: end the run
  WhenFull when_full = WhenFull::WAIT;           // while 65,536 records wait: WAIT, DROP_NEWEST or DROP_OLDEST
};

// Writes one line of text for each value, for people and grep:
//
//   [hyperparameter]: rank_zero_seed: 17
//   [metric][batch=12]: loss/train/total: 0.2500
//   [table][batch=12]: generations: {"columns":["prompt"],"data":[["a"]]}
//   [trace][batch=12]: algorithm_traces/EMA/Event.BATCH_END: 1
//   [stdout]: a line of the program's own
//
// Captured lines are written with the next record or event of the run. The streams themselves show them at once, as
// without capture. Line breaks within a text become \n. See LineFileLogger for opening, resuming and checkpoints.
class COMPOSER_EXPORT FileLogger final : public LineFileLogger {
 public:
  explicit FileLogger(FileLoggerOptions options = {});
  explicit FileLogger(EmptyOptions) : FileLogger() {}
  ~FileLogger() override;
  FileLogger(FileLogger&&) noexcept;

  bool wants_traces() const override;

  void log_record(const Record& record, const State& state) override;
  void init(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  std::unique_ptr<LineFormat> make_format(const State& state) override;
  void write_captured(const State& state, bool rest = false);

  bool log_traces_, capture_stdout_, capture_stderr_;
  std::unique_ptr<OutputCapture> captured_;  // null unless something is captured, and before INIT
};

}  // namespace composer::loggers

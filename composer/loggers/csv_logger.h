#pragma once
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"
#include "composer/loggers/line_file_logger.h"

namespace composer::loggers {

struct CsvLoggerOptions {
  // Path of the file. {run_name} and {rank} are replaced; missing folders are made.
  std::string path = "{run_name}/metrics-rank{rank}.csv";
  bool append = false;        // appends to an existing file that no other logger writes
  bool overwrite = false;     // replaces an existing file; with neither option, another run's file is an error
  Seconds flush_interval{1};  // 0 to 86,400 s; longest time until a line is in the file
  LogFailure on_failure = LogFailure::CONTINUE;  // if writing fails. CONTINUE: warn and count; FAIL: end the run
  WhenFull when_full = WhenFull::WAIT;           // while 65,536 records wait: WAIT, DROP_NEWEST or DROP_OLDEST
};

// Writes one line for each value of a metric below the header step,epoch,batch,time,key,value, where time is in seconds
// of training. The file only grows, so programs can read it while the run trains, and new metrics need no new columns.
// Fields are quoted as in RFC 4180 where that is necessary; NaN and infinities are nan, inf and -inf. Hyperparameters
// are not written. See LineFileLogger for opening, resuming and checkpoints.
class COMPOSER_EXPORT CsvLogger final : public LineFileLogger {
 public:
  explicit CsvLogger(CsvLoggerOptions options = {});
  explicit CsvLogger(EmptyOptions) : CsvLogger() {}
  ~CsvLogger() override;
  CsvLogger(CsvLogger&&) noexcept;

 private:
  std::unique_ptr<LineFormat> make_format(const State& state) override;
};

}  // namespace composer::loggers

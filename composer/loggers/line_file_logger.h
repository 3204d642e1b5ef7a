#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "composer/core/export.h"
#include "composer/core/for_all_ranks.h"
#include "composer/core/state.h"
#include "composer/loggers/background_logger.h"
#include "composer/loggers/resumable_logger.h"

namespace composer::loggers {

struct LineFileOptions {
  std::string path = {};   // {run_name} and {rank} are replaced; missing folders are made
  bool append = false;     // append to an existing file that no other logger writes
  bool overwrite = false;  // replace an existing file; with neither, another run's is an error
  BackgroundOptions background = {};
};

// The lines of a LineFileLogger. Called by the background thread, except for takes().
class COMPOSER_EXPORT LineFormat {
 public:
  LineFormat() = default;
  LineFormat(const LineFormat&) = delete;
  LineFormat& operator=(const LineFormat&) = delete;
  virtual ~LineFormat();
  virtual void append(std::string& lines, const Record& record) = 0;  // each ends with a newline
  virtual std::string header() const;                                 // of a new file; empty by default
  virtual std::string_view noun() const;                              // as RecordWriter; "lines" if each record is one
  virtual bool takes(const Record& record) const;                     // as RecordWriter
  // Whether the run of this name has written a file that begins like this. `own_path`: the path contains the run's
  // name, which is the answer by default.
  virtual bool is_begun_by(std::string_view run_name, std::string_view beginning, bool own_path) const;
};

// The base of loggers that write one growing file of text. In a run of several processes each writes one if the path
// has {rank}, else rank 0 alone. The file is opened at INIT; throws ConfigError if that fails, or if another logger
// writes it. A file that is removed while the run writes to it is begun again, and a warning says how many lines are
// missing. The file is synced before a checkpoint is written.
//
// A run that is resumed or can be resumed changes an existing file at FIT_START at the earliest, when no other process
// trains the run. Until then records are held in memory; if no fit follows, they are not written, and a warning says
// so. If the content of the file is that of the log at the checkpoint, lines logged after the checkpoint are cut off
// and the log is continued; if another logger writes the file, that is a ConfigError. If there is no file, it is begun
// again, with a warning. If the run starts from scratch and an earlier process of the run wrote the file
// (LineFormat::is_begun_by), that file is renamed, with a number appended; if a logger is still writing it, as that of
// another trainer, that is a ConfigError. So is the file of a rank other than 0 when the run is resumed, unless
// `append` is set. Any other file is treated as by a new run.
class COMPOSER_EXPORT LineFileLogger : public ResumableLogger, public ForAllRanks {
 public:
  ~LineFileLogger() override;
  LineFileLogger(LineFileLogger&&) noexcept;

  bool is_for_all_ranks() const override;
  void close(const State& state, Logger& logger) override;

 protected:
  // Throws ConfigError for a path without a name or with another placeholder.
  LineFileLogger(std::string name, LineFileOptions options);
  virtual std::unique_ptr<LineFormat> make_format(const State& state) = 0;

 private:
  std::unique_ptr<LogPlace> make_place(const State& state) final;
  LineFileOptions options_;
  std::string path_;     // of the file
  std::string written_;  // the path of the file that this logger has written last
};

}  // namespace composer::loggers

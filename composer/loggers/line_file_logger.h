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
  std::string path = {};              // path of the file. {run_name} and {rank} are replaced; missing folders are made
  bool append = false;                // appends to an existing file that no other logger writes
  bool overwrite = false;             // replaces an existing file; with neither option, another run's file is an error
  BackgroundOptions background = {};  // of the queue and the background thread
};

// The lines of a LineFileLogger. Called by the background thread, except for takes().
class COMPOSER_EXPORT LineFormat {
 public:
  LineFormat() = default;
  LineFormat(const LineFormat&) = delete;
  LineFormat& operator=(const LineFormat&) = delete;
  virtual ~LineFormat();
  // Appends lines for the record, each with a newline.
  virtual void append(std::string& lines, const Record& record) = 0;
  virtual std::string header() const;              // header of a new file; empty by default
  virtual std::string_view noun() const;           // see RecordWriter; "lines" if each record is one line
  virtual bool takes(const Record& record) const;  // see RecordWriter
  // Whether the run with this name has written a file that begins with `beginning`. `own_path`: the path contains the
  // run's name; returned by default.
  virtual bool is_begun_by(std::string_view run_name, std::string_view beginning, bool own_path) const;
};

// The base of loggers that write one growing text file. In a run of several processes, each process writes a file if
// the path contains {rank}, otherwise only rank 0 does. The file is opened at INIT, with ConfigError if that fails or
// if another logger writes the file. A file that is removed while the run writes to it is begun again, and a warning
// says how many lines are missing. The file is synced before a checkpoint is written.
//
// A run that is resumed or can be resumed changes an existing file at FIT_START at the earliest, when no other process
// trains the run. Until then records are held in memory. If no fit follows, they are not written, and a warning says
// so. At FIT_START:
// - If the file has the content that the log had at the checkpoint, lines logged after the checkpoint are cut off and
//   the log is continued. If another logger is writing the file, ConfigError is thrown.
// - If the log of the checkpoint has no file any more, the file is begun again, with a warning.
// - If the run starts from scratch and an earlier process of the run wrote the file (LineFormat::is_begun_by), the file
//   is renamed, with a number appended. If a logger is still writing it, such as that of another trainer, ConfigError
//   is thrown.
// - The file of a rank other than 0 of a resumed run is also renamed, unless `append` is set.
// - Any other file is treated as by a new run.
class COMPOSER_EXPORT LineFileLogger : public ResumableLogger, public ForAllRanks {
 public:
  ~LineFileLogger() override;
  LineFileLogger(LineFileLogger&&) noexcept;

  bool is_for_all_ranks() const override;
  void close(const State& state, Logger& logger) override;

 protected:
  // Throws ConfigError for a path without a name, or with an unknown placeholder.
  LineFileLogger(std::string name, LineFileOptions options);
  virtual std::unique_ptr<LineFormat> make_format(const State& state) = 0;

 private:
  std::unique_ptr<LogPlace> make_place(const State& state) final;
  LineFileOptions options_;
  std::string path_;     // of the file
  std::string written_;  // path of the file that this logger has written last
};

}  // namespace composer::loggers

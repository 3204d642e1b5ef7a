#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/state.h"
#include "composer/core/time.h"
#include "composer/loggers/resumable_logger.h"

namespace composer::loggers {

class EventWriter;

struct TensorBoardLoggerOptions {
  std::string folder = "tensorboard/{run_name}";  // {run_name} is replaced; missing folders are made
  bool simple_values = false;                     // write metrics in the form of torch.utils.tensorboard
  std::int64_t max_images = 16;                   // >= 1; written of each record, the others are left out
  // Log the file itself with Logger::upload_file() when an epoch or a fit ends, as tensorboard/{run_name}/<its name>,
  // for a RemoteUploader, say.
  bool upload = false;
  Seconds flush_interval{1};  // 0 to 86,400 s; longest time until a record is in the file
  LogFailure on_failure = LogFailure::CONTINUE;
  WhenFull when_full = WhenFull::WAIT;
};

// Writes metrics, images, histograms, tables (as text) and hyperparameters for TensorBoard, on a background thread.
// Each process writes one file, events.out.tfevents.<seconds>.<host>.<process>.<number>.run-<checksum of the run_name
// and the save folder>, which TensorBoard shows while it grows. In a run of several processes, only that of rank 0
// writes.
//
// Throws ConfigError at INIT (of a resumed run: before it trains) if the folder cannot be written. A file that is
// removed meanwhile is begun again.
//
// No step is shown twice: once a resumed run trains, it cuts off what the file of the process that wrote the checkpoint
// contains after it, removes the files that processes of the run have begun since, and begins a new file. Until then
// records are held in memory; if no fit follows, they are not written, and a warning says so. A run that can be resumed
// but starts from scratch renames the files of its earlier processes. Files that a living process has locked, and those
// of runs with another save folder, stay as they are.
class COMPOSER_EXPORT TensorBoardLogger final : public ResumableLogger {
 public:
  explicit TensorBoardLogger(TensorBoardLoggerOptions options = {});
  explicit TensorBoardLogger(EmptyOptions) : TensorBoardLogger() {}
  ~TensorBoardLogger() override;
  TensorBoardLogger(TensorBoardLogger&&) noexcept;

  void fit_start(const State& state, Logger& logger) override;
  void epoch_end(const State& state, Logger& logger) override;
  void fit_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  std::unique_ptr<LogPlace> make_place(const State& state) override;
  void upload(Logger& logger);

  TensorBoardLoggerOptions options_;
  std::shared_ptr<EventWriter> writer_;  // null for a rank other than 0
};

}  // namespace composer::loggers

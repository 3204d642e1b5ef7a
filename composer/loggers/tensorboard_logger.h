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
  std::string folder = "tensorboard/{run_name}";  // folder of the file; {run_name} is replaced; missing ones are made
  // Writes metrics in the form of torch.utils.tensorboard, which EventAccumulator.Scalars() reads, instead of
  // .Tensors(). TensorBoard shows both.
  bool simple_values = false;
  std::int64_t max_images = 16;  // >= 1; images written per record, further ones are left out
  // Logs the file itself by upload_file() when an epoch or a fit ends, as tensorboard/{run_name}/<file>.
  bool upload = false;
  Seconds flush_interval{1};                     // 0 to 86,400 s; longest time until a record is in the file
  LogFailure on_failure = LogFailure::CONTINUE;  // if writing fails. CONTINUE: warn and count; FAIL: end the run
  WhenFull when_full = WhenFull::WAIT;           // while 65,536 records wait: WAIT, DROP_NEWEST or DROP_OLDEST
};

// Writes metrics, images, histograms, tables (as text) and hyperparameters for TensorBoard, on a background thread.
// Each process writes one file, events.out.tfevents.<seconds>.<host>.<process>.<number>.run-<checksum of the run_name
// and the save folder>, which TensorBoard shows while it grows. In a run of several processes, only rank 0 writes.
//
// Throws ConfigError if the folder cannot be written: at INIT, or in a resumed run before it trains. A file that is
// removed while the run writes to it is begun again.
//
// No step is shown twice. When a resumed run begins to train, it cuts off what was logged after the checkpoint from the
// checkpoint's file, removes later files of the run, and begins a new file. Until then records are held in memory. If
// no fit follows, they are not written, and a warning says so. A run that can be resumed but starts from scratch
// renames the files of its earlier processes. Files that a living process has locked, and those of runs with another
// save folder, stay unchanged.
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

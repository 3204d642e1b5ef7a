#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "composer/core/by_name.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/for_all_ranks.h"
#include "composer/core/state.h"
#include "composer/core/time.h"
#include "composer/loggers/run_logger.h"

namespace composer::loggers {

class WandBWriter;

struct WandBLoggerOptions {
  [[no_unique_address]] ByName by_name = {};
  std::string project = {};            // at most 128 characters, none of / \ # ? % : ; empty: W&B's "uncategorized"
  std::string group = {};              // group of the run; empty: none
  std::string name = {};               // name of the run in W&B; empty: run_name
  std::string entity = {};             // user or team; empty: the account that sends the run
  std::vector<std::string> tags = {};  // each of 1 to 64 characters
  std::string job_type = {};           // type of the job, as W&B shows it; empty: none
  std::string notes = {};              // notes on the run; empty: none
  std::string folder = ".";            // the run is written below its folder wandb/; {run_name} is replaced
  bool log_artifacts = false;          // copies the files of Logger::upload_file() into the run
  bool rank_zero_only = true;          // false: each rank writes a run of its own, NAME-rankN, in one group
  std::int64_t max_images = 16;        // >= 1; images written per record, further ones are left out
  Seconds flush_interval{1};           // 0 to 86,400 s; longest time until a finished step is in the file
  LogFailure on_failure = LogFailure::CONTINUE;  // if writing fails. CONTINUE: warn and count; FAIL: end the run
  WhenFull when_full = WhenFull::WAIT;           // while 65,536 records wait: WAIT, DROP_NEWEST or DROP_OLDEST
};

// Writes an offline run of Weights & Biases, on a background thread and without a network, into
// FOLDER/wandb/offline-run-<time>-<id>. `wandb sync` sends it to W&B. Metrics, images, histograms and tables become the
// run's history and summary; hyperparameters become its config. The run's exit code is 0; 1 after an error; 255 if a
// signal has ended the fit.
//
// A step of the history contains everything logged at it. It is written when the next step begins, at flush() or at
// close(). Steps only rise: what is logged at a lower step than the current one is added to the current one.
//
// Throws ConfigError at INIT if the folder cannot be written. When a resumed run begins to train, it continues the
// offline run of its checkpoint, without what was logged after the checkpoint. If the folder of that run is missing or
// was changed, a new run is begun, with a warning.
class COMPOSER_EXPORT WandBLogger final : public RunLogger, public ForAllRanks {
 public:
  explicit WandBLogger(WandBLoggerOptions options = {});
  explicit WandBLogger(EmptyOptions) : WandBLogger() {}
  ~WandBLogger() override;
  WandBLogger(WandBLogger&&) noexcept;

  bool is_for_all_ranks() const override { return !options_.rank_zero_only; }
  void close(const State& state, Logger& logger) override;

  // The folder of the run that is being written, and its id at W&B; empty if there is none.
  std::string run_folder() const;
  std::string run_id() const;

 private:
  std::unique_ptr<LogPlace> make_place(const State& state) override;
  WandBLoggerOptions options_;
  std::shared_ptr<WandBWriter> writer_;  // null for a rank that does not write
};

}  // namespace composer::loggers

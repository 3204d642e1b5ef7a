#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "composer/core/by_name.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/state.h"
#include "composer/core/time.h"
#include "composer/loggers/run_logger.h"

namespace composer::loggers {

class MlflowWriter;

struct MLFlowLoggerOptions {
  [[no_unique_address]] ByName by_name = {};
  // Created if it is missing. Empty: MLFLOW_EXPERIMENT_NAME of the environment, or "my-mlflow-experiment".
  std::string experiment_name = {};
  std::string run_name = {};                     // name of the MLflow run; empty: the run's run_name
  std::map<std::string, std::string> tags = {};  // tags of the run
  std::string run_group = {};                    // value of the run's tag run_group; empty: no such tag
  // A folder (mlruns, file:///data/mlruns), or the address of a tracking server (http://localhost:5000). Empty:
  // MLFLOW_TRACKING_URI of the environment, or "mlruns".
  std::string tracking_uri = {};
  std::string fallback_folder = {};  // used if the server cannot be reached at the start; empty: that is an error
  std::map<std::string, std::string> rename_metrics = {};  // new names of metrics, by key
  std::vector<std::string> ignore_metrics = {};            // globs of keys that are left out
  std::vector<std::string> ignore_hyperparameters = {};    // globs of keys that are left out
  // >= 1; a value that does not change is logged only every so many steps.
  std::int64_t log_duplicated_metric_every_n_steps = 100;
  bool log_artifacts = false;                    // writes the files of Logger::upload_file() to the run
  std::int64_t max_images = 16;                  // >= 1; images written per record, further ones are left out
  std::int64_t attempts = 4;                     // 1 to 10; tries of a request to the server, with growing pauses
  Seconds flush_interval{10};                    // 0 to 86,400 s; longest time until a record is written
  LogFailure on_failure = LogFailure::CONTINUE;  // if writing fails. CONTINUE: warn and count; FAIL: end the run
  WhenFull when_full = WhenFull::WAIT;           // while 65,536 records wait: WAIT, DROP_NEWEST or DROP_OLDEST
};

// Writes an MLflow run on a background thread, into a folder of MLflow's file store or to a tracking server. Metrics
// become metrics, hyperparameters become params, texts become tags; images, tables, histograms and files become
// artifacts. In a run of several processes, only rank 0 writes. The run's final status is FINISHED, FAILED after an
// error, or KILLED if a signal has ended the fit.
//
// Throws ConfigError if the folder cannot be written or the server does not answer: at INIT, or in a resumed run before
// it trains. If the server fails later, records are lost and counted, and the run continues, unless on_failure is FAIL.
//
// A resumed run continues the MLflow run of its checkpoint. In a folder, metrics that were logged after the checkpoint
// are removed; on a server they stay. If the MLflow run does not exist any more, a new one is begun, with a warning.
class COMPOSER_EXPORT MLFlowLogger final : public RunLogger {
 public:
  explicit MLFlowLogger(MLFlowLoggerOptions options = {});
  explicit MLFlowLogger(EmptyOptions) : MLFlowLogger() {}
  ~MLFlowLogger() override;
  MLFlowLogger(MLFlowLogger&&) noexcept;

  void close(const State& state, Logger& logger) override;

  // Ids of the run that is being written; empty if there is none.
  std::string run_id() const;
  std::string experiment_id() const;

 private:
  std::unique_ptr<LogPlace> make_place(const State& state) override;
  MLFlowLoggerOptions options_;
  std::shared_ptr<MlflowWriter> writer_;  // null for a rank other than 0
};

}  // namespace composer::loggers

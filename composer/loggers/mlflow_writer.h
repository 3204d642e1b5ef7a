#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/loggers/mlflow_logger.h"
#include "composer/loggers/mlflow_store.h"
#include "composer/loggers/string_map.h"

namespace composer::loggers {

// Writes records into one MLflow run.
class MlflowWriter final : public RecordWriter {
 public:
  MlflowWriter(const MLFlowLoggerOptions& options, std::unique_ptr<MlflowStore> store, std::string where);

  std::string where() const override { return where_; }
  bool takes(const Record& record) const override;
  void set_status(RunStatus status) { status_ = status; }  // status of the run; may be called from any thread

  // The following are for the thread that trains, while the background thread is idle.
  void use(std::unique_ptr<MlflowStore> store) { store_ = std::move(store); }
  void begin(const std::string& experiment, const std::string& name, const MlflowTexts& tags);
  bool resume(const std::string& run_id, std::int64_t time);  // returns false if there is no such run
  const std::string& run_id() const { return id_; }
  std::string experiment_id() const { return store_->experiment_id(); }
  // In milliseconds since 1970. No point so far is later, and all later points are, whatever the clock says.
  std::int64_t end_of_points();
  void sync() override { store_->sync(); }

 private:
  // The content of records in MLflow's terms.
  struct Batch {
    std::vector<MlflowMetric> metrics;
    MlflowTexts params, tags;
    std::vector<MlflowArtifact> artifacts;
  };
  // How the metrics of a key are written.
  struct Target {
    bool is_known = false;
    std::string name;
    std::optional<MlflowPoint>* last = nullptr;  // last point of all metrics with this name; null: the key is ignored
  };

  void write(Records records) override;
  void close() override;
  void add(Batch& batch, const Record& record);
  void add_metrics(Batch& batch, const Record& record);
  const Target& target_of(std::string_view key);
  void add_params(Batch& batch, const Record& record);
  void add_content(Batch& batch, const Record& record) const;
  template <class Send>
  void attempt(std::int64_t count, const Send& send);

  const MLFlowLoggerOptions options_;
  const std::string where_;
  std::unique_ptr<MlflowStore> store_;
  std::atomic<RunStatus> status_ = RunStatus::FINISHED;
  std::string id_;
  MlflowTexts params_;                          // params of the run so far
  StringMap<std::optional<MlflowPoint>> last_;  // last points by name
  std::atomic<std::int64_t> earliest_ = 0;      // lower limit for the time of the next point
  SequenceMap<Target> targets_;
};

}  // namespace composer::loggers

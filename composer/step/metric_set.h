#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/fit_outline.h"
#include "composer/core/logger.h"
#include "composer/core/metric.h"
#include "composer/core/metric_parts.h"
#include "composer/step/metric_sums.h"

namespace composer {

class Model;
class StateDict;
struct State;

// The metrics of one loader, reported as metrics/<label>/<name>.
class MetricSet {
 public:
  MetricSet() = default;
  // Makes fresh copies of `metrics`. With `names`, only of metrics whose name contains a match of one of these regular
  // expressions, ignoring case.
  MetricSet(const Metrics& metrics, std::string label, const std::optional<std::vector<std::string>>& names = {});

  void reset();
  void update(Model& model, const Batch& batch, const Outputs& outputs);
  // Computes all metrics, sets them in the state and logs them in one call. With `keep_if_empty` and no update since
  // the last report, as at the end of an epoch, metrics keep their values. With a world, the metrics are those of the
  // samples of all ranks; all ranks make the same calls. Without keep_if_empty they keep the sums of all ranks, so call
  // reset() before the next update. Tables and images of metrics are logged without keep_if_empty
  // only, because those of training would be logged at each batch.
  void report(State& state, Logger& logger, bool keep_if_empty, dist::World* world);
  std::span<const LogEntry> reported() const { return report_; }  // by the last call of report()
  const std::string& label() const { return label_; }
  // The metric of this name with what the last report was computed from. Throws ConfigError if there is none, or no
  // report.
  const Metric& metric(std::string_view name) const;
  bool empty() const { return list_.empty(); }
  std::vector<std::string> names() const;  // of all values
  StateDict local_hparams() const;         // with names such as "MulticlassAccuracy/top_k"
  FitOutline::Source source() const;
  // For each metric, which values are better; also for values that exist already, as in a resumed run.
  void declare(State& state) const;
  // Throws ConfigError for a metric without sums, which could be neither added up over ranks nor restored.
  void check_have_sums() const;

  // The sums and rows so far. restore() sets them again, which undoes all updates since.
  struct Kept {
    std::vector<at::Tensor> sums;
    std::vector<std::vector<at::Tensor>> rows;
  };
  Kept kept() const;
  void restore(const Kept& kept);

 private:
  struct Value {
    std::string name, key;
  };
  struct Entry {
    std::shared_ptr<Metric> metric;
    std::string name, key;
    const HasSeveralValues* several = nullptr;  // the metric, if it has several values
    std::vector<Value> values = {};             // those besides the one called `name`
  };
  std::string label_;
  bool updated_ = false;  // whether there was an update since the last reset or report
  std::vector<Entry> list_;
  void compute(State& state, Logger& logger, bool keep);
  void compute_values(const Entry& entry, State& state, bool keep);
  void log_content(Logger& logger) const;
  std::vector<LogEntry> report_;  // kept for its capacity
  MetricSums sums_;
};

}  // namespace composer

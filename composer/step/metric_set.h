#pragma once
#include <optional>
#include <string>
#include <vector>

#include "composer/core/fit_outline.h"
#include "composer/core/logger.h"
#include "composer/core/metric.h"
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
  // samples of all ranks; all ranks make the same calls.
  void report(State& state, Logger& logger, bool keep_if_empty, dist::World* world);
  bool empty() const { return list_.empty(); }
  std::vector<std::string> names() const;
  StateDict local_hparams() const;  // with names such as "MulticlassAccuracy/top_k"
  FitOutline::Source source() const;
  // For each metric, which values are better; also for values that exist already, as in a resumed run.
  void declare(State& state) const;
  // Throws ConfigError for a metric without sums, which could be neither added up over ranks nor restored.
  void check_have_sums() const;

  // The sums so far. restore() sets them again, which undoes all updates since.
  std::vector<at::Tensor> kept() const;
  void restore(const std::vector<at::Tensor>& kept);

 private:
  struct Entry {
    std::shared_ptr<Metric> metric;
    std::string name, key;
  };
  std::string label_;
  bool updated_ = false;  // whether there was an update since the last reset or report
  std::vector<Entry> list_;
  void compute(State& state, Logger& logger, bool keep);
  std::vector<LogEntry> report_;  // kept for its capacity
  MetricSums sums_;
};

}  // namespace composer

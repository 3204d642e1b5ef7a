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
  // Fresh copies of `metrics`, those only whose name one of the regular expressions `names` finds, in any case.
  MetricSet(const Metrics& metrics, std::string label, const std::optional<std::vector<std::string>>& names = {});

  void reset();
  void update(Model& model, const Batch& batch, const Outputs& outputs);
  // Computes all, notes them in the state and logs them in one call. `keep_if_empty`: with nothing new to compute them
  // of, as at the end of an epoch, they are what they were. With a world, they are those of the
  // samples of all ranks, which call this alike.
  void report(State& state, Logger& logger, bool keep_if_empty, dist::World* world);
  bool empty() const { return list_.empty(); }
  std::vector<std::string> names() const;
  StateDict local_hparams() const;  // as "MulticlassAccuracy/top_k"
  FitOutline::Source source() const;
  void declare(State& state) const;  // which values are better, of those that are there, as in a run that goes on
  void check_have_sums() const;  // throws ConfigError for one that could be neither added up over ranks nor restored

  // What has been added up so far, for restore(), which takes back all updates since.
  std::vector<at::Tensor> kept() const;
  void restore(const std::vector<at::Tensor>& kept);

 private:
  struct Entry {
    std::shared_ptr<Metric> metric;
    std::string name, key;
  };
  std::string label_;
  bool updated_ = false;  // since the last reset or report
  std::vector<Entry> list_;
  void compute(State& state, Logger& logger, bool keep);
  std::vector<LogEntry> report_;  // kept for its capacity
  MetricSums sums_;
};

}  // namespace composer

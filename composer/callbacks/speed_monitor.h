#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "composer/callbacks/wall_clock_unit.h"
#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer {
class FlopCounter;
}  // namespace composer

namespace composer::callbacks {

struct SpeedMonitorOptions {
  std::int64_t window_size = 100;                  // number of batches in the average; 1 to 1000000
  double gpu_flops_available = 0;                  // peak FLOPs per second of one device; 0: from a table of GPUs
  WallClockUnit time_unit = WallClockUnit::HOURS;  // unit of time/*: SECONDS, MINUTES, HOURS or DAYS
  bool count_flops = true;  // counts the operations of the first batch if the model has no flops_per_batch()
};

// Logs after each batch the throughput over a rolling window of batches, and wall time. Time of evaluations does not
// count as training. Throughput is logged once the window is full.
class COMPOSER_EXPORT SpeedMonitor final : public Callback {
 public:
  explicit SpeedMonitor(SpeedMonitorOptions options = {});
  explicit SpeedMonitor(EmptyOptions) : SpeedMonitor() {}
  StateDict local_hparams() const override;
  void init(const State& state, Logger& logger) override;  // clears the measurements of another trainer
  void fit_start(const State& state, Logger& logger) override;
  void before_train_batch(const State& state, Logger& logger) override;
  void after_train_batch(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void eval_end(const State& state, Logger& logger) override;
  void visit_state(StateVisitor& visit) override;

 private:
  struct Point {
    std::int64_t batch = 0, sample = 0, token = 0;
    Seconds wct{};
    double flops = 0;  // of all batches so far
    void visit_state(StateVisitor& visit);
  };
  double flops_of(const State& state);
  void log_throughput(const Point& from, const Point& to, int world_size, Logger& logger) const;

  SpeedMonitorOptions options_;
  std::vector<Point> points_;  // ring buffer of the times after the last batches; newest_ is the newest
  std::size_t newest_ = 0, filled_ = 0;
  Seconds total_eval_wct_{};
  std::optional<double> flops_per_sample_;  // the counted number
  std::optional<double> counted_;           // counted in the current batch
  std::shared_ptr<FlopCounter> counter_;    // set while it counts
  double peak_ = 0;                         // of a device, FLOPs per second; 0: unknown
};

}  // namespace composer::callbacks

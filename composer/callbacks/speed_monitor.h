#pragma once
#include <cstdint>
#include <vector>

#include "composer/core/callback.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::callbacks {

enum class WallClockUnit : std::uint8_t { SECONDS, MINUTES, HOURS, DAYS };

struct SpeedMonitorOptions {
  std::int64_t window_size = 100;                  // batches over which throughput is averaged; 1 to 1000000
  double gpu_flops_available = 0;                  // per second, of one device; 0: unknown, no mfu is logged
  WallClockUnit time_unit = WallClockUnit::HOURS;  // of time/train, time/val and time/total
};

// Logs, after each batch, how fast training is over a rolling window of batches, and how long it has taken. Time spent
// in evaluation does not count as training. Throughput is logged from the batch on that fills the window.
class COMPOSER_EXPORT SpeedMonitor final : public Callback {
 public:
  explicit SpeedMonitor(SpeedMonitorOptions options = {});
  void init(const State& state, Logger& logger) override;  // forgets what another trainer has taken
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
  void log_throughput(const Point& from, const Point& to, int world_size, Logger& logger) const;

  SpeedMonitorOptions options_;
  std::vector<Point> points_;  // a ring: after the last batches, of which the newest is at newest_
  std::size_t newest_ = 0, filled_ = 0;
  Seconds total_eval_wct_{};
};

}  // namespace composer::callbacks

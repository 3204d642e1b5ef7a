#include "composer/callbacks/speed_monitor.h"

#include <memory>
#include <optional>
#include <string>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/device/device_support.h"
#include "composer/util/flop_counter.h"

namespace composer::callbacks {
namespace {

// 0 if it is unknown, for example for a CPU.
double peak_of(const State& state) {
  try {
    const auto peak = device_support(state.device.type()).peak_rate(state.device, state.precision);
    if (!peak) return 0;
    if (peak->flops) return *peak->flops;
    warn(join("SpeedMonitor: no mfu is logged: the peak rate of \"", peak->device, "\" in ", to_string(state.precision),
              " is unknown; set gpu_flops_available"));
  } catch (const std::exception& error) {
    warn(join("SpeedMonitor: no mfu is logged: ", describe(error)));
  }
  return 0;
}

std::vector<Option<SpeedMonitorOptions>> speed_monitor_options() {
  using O = SpeedMonitorOptions;
  return all_options(option("window_size", &O::window_size).from_to(1, 1'000'000),
                     option("gpu_flops_available", &O::gpu_flops_available).at_least(0).finite(),
                     option("time_unit", &O::time_unit, kWallClockUnits), option("count_flops", &O::count_flops));
}

}  // namespace

SpeedMonitor::SpeedMonitor(SpeedMonitorOptions options)
    : options_(checked("SpeedMonitor", options, speed_monitor_options())), peak_(options_.gpu_flops_available) {
  seconds_in(options_.time_unit, "SpeedMonitor");
  points_.resize(static_cast<std::size_t>(options_.window_size) + 1);
}

void SpeedMonitor::init(const State&, Logger&) {
  newest_ = filled_ = 0;
  total_eval_wct_ = {};
  flops_per_sample_.reset();
  counted_.reset();
  counter_.reset();
  peak_ = options_.gpu_flops_available;
}

void SpeedMonitor::fit_start(const State& state, Logger&) {
  if (peak_ == 0) peak_ = peak_of(state);
}

// Called once per attempt at a batch; each attempt counts from 0.
void SpeedMonitor::before_train_batch(const State& state, Logger& logger) {
  if (!options_.count_flops || flops_per_sample_ || logger.empty()) return;
  if (!state.model || composer::flops_of(*state.model, state.batch)) return;
  if (!counter_) counter_ = std::make_shared<FlopCounter>();
  if (!counter_->start()) counter_.reset();  // another trainer counts: the next batch will be counted
}

void SpeedMonitor::after_train_batch(const State&, Logger&) {
  if (!counter_) return;
  counted_ = static_cast<double>(counter_->stop());
  counter_.reset();
}

// The FLOPs of the batch that has ended, on all ranks. The counted number, and one that depends on state.batch, are for
// the samples of this rank.
double SpeedMonitor::flops_of(const State& state) {
  const std::int64_t before = state.previous_timestamp ? state.previous_timestamp->sample : 0;
  const auto samples = static_cast<double>(state.timestamp.sample - before);
  const bool is_whole = state.world_size == 1 || state.batch.empty();
  const double own = is_whole ? samples : static_cast<double>(state.batch.front().size(0));
  if (state.model)
    if (const std::optional<double> given = composer::flops_of(*state.model, state.batch))
      return is_whole || own == 0 ? *given : *given / own * samples;
  if (counted_ && own > 0) flops_per_sample_ = *counted_ / own;
  counted_.reset();
  return flops_per_sample_.value_or(0) * samples;
}

void SpeedMonitor::batch_end(const State& state, Logger& logger) {
  const Timestamp& now = state.timestamp;
  if (filled_ > 0 && now.batch <= points_[newest_].batch) filled_ = 0;  // counted from zero again
  const double flops_before = filled_ > 0 ? points_[newest_].flops : 0;
  const double flops = flops_of(state);
  newest_ = (newest_ + 1) % points_.size();
  points_[newest_] = {now.batch, now.sample, now.token, now.total_wct, flops_before + flops};
  if (filled_ < points_.size()) ++filled_;

  if (filled_ == points_.size())
    log_throughput(points_[(newest_ + 1) % points_.size()], points_[newest_], state.world_size, logger);
  const double unit = seconds_in(options_.time_unit, "SpeedMonitor");
  const double train = now.total_wct.count() / unit, val = total_eval_wct_.count() / unit;
  logger.log_metrics({{"time/train", train}, {"time/val", val}, {"time/total", train + val}});
}

void SpeedMonitor::log_throughput(const Point& from, const Point& to, int world_size, Logger& logger) const {
  const double seconds = (to.wct - from.wct).count();
  if (!(seconds > 0)) return;  // the clock has not advanced
  const double batches = static_cast<double>(options_.window_size) / seconds;
  const double samples = static_cast<double>(to.sample - from.sample) / seconds;
  const double tokens = static_cast<double>(to.token - from.token) / seconds;
  const double flops = (to.flops - from.flops) / seconds;
  logger.log_metrics({{"throughput/batches_per_sec", batches},
                      {"throughput/samples_per_sec", samples},
                      {"throughput/device/batches_per_sec", batches / world_size},
                      {"throughput/device/samples_per_sec", samples / world_size}});
  if (tokens > 0)
    logger.log_metrics(
        {{"throughput/tokens_per_sec", tokens}, {"throughput/device/tokens_per_sec", tokens / world_size}});
  if (!(flops > 0)) return;
  logger.log_metrics({{"throughput/flops_per_sec", flops}, {"throughput/device/flops_per_sec", flops / world_size}});
  if (peak_ > 0) logger.log_metrics({{"throughput/device/mfu", flops / world_size / peak_}});
}

void SpeedMonitor::eval_end(const State& state, Logger&) { total_eval_wct_ += state.eval_timestamp.total_wct; }

void SpeedMonitor::Point::visit_state(StateVisitor& visit) {
  visit("batch", batch), visit("sample", sample), visit("token", token);
  visit("wct", wct), visit("flops", flops);
}

// Restores the saved window in a resumed run, if its size is the same and the indices lie within it.
void SpeedMonitor::visit_state(StateVisitor& visit) {
  const std::vector<Point> empty = points_;
  visit("points", points_);
  visit("newest", newest_);
  visit("filled", filled_);
  visit("total_eval_wct", total_eval_wct_);
  visit("flops_per_sample", flops_per_sample_);
  if (points_.size() == empty.size() && newest_ < points_.size() && filled_ <= points_.size()) return;
  points_ = empty;
  newest_ = filled_ = 0;
}

StateDict SpeedMonitor::local_hparams() const { return describe(options_, speed_monitor_options()); }

namespace entries {

Entry<Callbacks> speed_monitor() {
  return entry<SpeedMonitor>("speed_monitor", "Logs throughput and wall time", speed_monitor_options());
}

}  // namespace entries
}  // namespace composer::callbacks

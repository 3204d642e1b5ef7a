#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/data/data_spec.h"
#include "composer/util/plot.h"

namespace composer {

struct FindLrOptions {
  double start_lr = 1e-7;             // > 0, of the first parameter group; the others keep their ratio to it
  double end_lr = 10;                 // > start_lr; the rate of the last batch
  std::int64_t num_batches = 100;     // >= 2
  double smoothing = 0.85;            // in [0, 1); the weight of a loss beside its neighbour's, whose average it enters
  double stop_at = 4;                 // > 1; ends the trial at so many times the lowest smoothed loss, or at NaN
  AnyDataSpec train_dataloader = {};  // unset: the trainer's
};

struct LrPoint {
  double lr, loss, smoothed;
};

// What losses a learning-rate range test (Smith 2017, arXiv:1506.01186) has met on its way up.
struct COMPOSER_EXPORT LrCurve {
  std::vector<LrPoint> points;  // of each batch; the last is the one that ended the trial, if its loss was finite
  // Where the smoothed loss falls most steeply over log(lr), before its lowest point; unset if it does not fall by more
  // than chance.
  std::optional<double> suggestion;
  bool diverged = false;  // ended before end_lr, because the loss rose too far or was no number

  // Of one loss per rate. A loss is averaged with those before and after it, so that nothing is shifted, and what rises
  // far above the start counts as less than it is; what ends the trial is a moving average of those before it.
  static LrCurve of(const std::vector<double>& rates, const std::vector<double>& losses,
                    const FindLrOptions& options = {});

  // The smoothed loss as text, with the suggestion marked and named.
  std::string plot(const PlotOptions& options = {}) const;
};

}  // namespace composer

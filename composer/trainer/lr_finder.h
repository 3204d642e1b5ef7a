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
  double start_lr = 1e-7;          // > 0; rate of the first parameter group; other groups keep their ratio to it
  double end_lr = 10;              // > start_lr; rate of the last batch
  std::int64_t num_batches = 100;  // >= 2; batches of the trial
  // in [0, 1); each loss is averaged with its neighbours, whose weights shrink by this factor per batch of distance
  double smoothing = 0.85;
  double stop_at = 4;  // > 1; the trial ends if the moving average of losses is this often the lowest, or NaN
  AnyDataSpec train_dataloader = {};  // unset: the trainer's
};

struct LrPoint {
  double lr, loss, smoothed;
};

// The losses of a learning-rate range test (Smith 2017, arXiv:1506.01186) at rising rates.
struct COMPOSER_EXPORT LrCurve {
  std::vector<LrPoint> points;  // one per batch; the last is of the batch that ended the trial, if its loss was finite
  // The rate at which the smoothed loss falls most steeply over log(lr), before its lowest point. Unset if the loss
  // does not fall by more than chance.
  std::optional<double> suggestion;
  bool diverged = false;  // ended before end_lr, because the loss rose too far or was not finite

  // The curve of one loss per rate. Each loss is averaged with those before and after it, so that nothing is shifted,
  // and losses far above the start are bounded. The end of the trial is decided by a moving average of the losses so
  // far.
  static LrCurve of(const std::vector<double>& rates, const std::vector<double>& losses,
                    const FindLrOptions& options = {});

  // Draws the smoothed loss as text, with the suggestion marked and named.
  std::string plot(const PlotOptions& options = {}) const;
};

}  // namespace composer

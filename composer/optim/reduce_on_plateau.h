#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "composer/core/export.h"
#include "composer/core/metric.h"
#include "composer/core/time.h"
#include "composer/optim/schedule.h"

namespace composer::optim {

enum class ThresholdMode : std::uint8_t { REL, ABS };

struct ReduceOnPlateauOptions {
  std::string monitor = {};                           // required: name of the metric, without its label
  std::string dataloader_label = "eval";              // of the evaluator that reports it; "train": see below
  Better better = Better::LOWER;                      // PyTorch's mode min; HIGHER: max
  double factor = 0.1;                                // in (0, 1)
  Time patience = "10ep";                             // >= 0
  double threshold = 1e-4;                            // >= 0; what a new best must gain
  ThresholdMode threshold_mode = ThresholdMode::REL;  // as a share of the best, or in the metric's own unit
  Time cooldown = "0ep";                              // >= 0, in the unit of patience
  double min_alpha = 0;                               // >= 0; the lowest share of the learning rate
  double eps = 1e-8;                                  // >= 0; a cut by no more than this share is not made
};

// What it has seen, to be saved and put back.
struct PlateauMemory {
  double alpha = 1;                            // the multiplier
  std::optional<double> best = {};             // unset: no value yet that was a number
  std::optional<std::int64_t> bad_since = {};  // in the unit of patience; where the wait without a best began

  friend bool operator==(const PlateauMemory&, const PlateauMemory&) = default;
};

// Multiplies the learning rate by `factor` once the metric has gone for longer than `patience` without a new best; what
// happens in the `cooldown` after that does not count as waiting. NaN is never a best. Evaluated once per unit of
// patience, it decides as PyTorch's ReduceLROnPlateau; evaluated more or less often, it waits the same time. Metrics of
// training ("train") are those of the last batch of each epoch. A cut is in force from the next batch on, whatever
// step_schedulers_every_batch says. Each trainer that is made with it begins without a memory, unless set_memory() was
// called before. Throws ConfigError from the constructor, when a fit begins that has nothing with
// this label, and at the first evaluation without this metric.
class COMPOSER_EXPORT ReduceOnPlateau final : public MetricSchedule {
 public:
  explicit ReduceOnPlateau(ReduceOnPlateauOptions options);

  const std::string& dataloader_label() const override { return options_.dataloader_label; }
  void observe(const State& state) override;
  double multiplier(const ScheduleContext& now) const override;
  void visit_state(StateVisitor& visit) override;
  void begin_run() override;

  // One value of the metric, with the timestamp's count in the unit of patience.
  void observe(double value, std::int64_t now);
  const PlateauMemory& memory() const { return memory_; }
  void set_memory(PlateauMemory memory);  // throws ConfigError for what cannot be: an alpha outside of [0, 1]

 private:
  bool is_best(double value) const;
  void reduce();

  ReduceOnPlateauOptions options_;
  PlateauMemory memory_;
  bool keeps_memory_ = false;  // it was set for the trainer that comes next
};

// To keep a hand on its memory, make a std::shared_ptr<ReduceOnPlateau> and give that to the trainer.
COMPOSER_EXPORT Scheduler reduce_on_plateau(ReduceOnPlateauOptions options);

}  // namespace composer::optim

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
  std::string monitor = {};               // required: name of the metric, without its label
  std::string dataloader_label = "eval";  // label of its evaluator; "train": the last batch of each epoch
  std::optional<Better> better = {};      // LOWER (PyTorch's min) or HIGHER (max); unset: as the metric declares
  double factor = 0.1;                    // in (0, 1); factor of each cut
  Time patience = "10ep";                 // >= 0; in any counted unit
  double threshold = 1e-4;                // >= 0; improvements of this or less do not count
  ThresholdMode threshold_mode = ThresholdMode::REL;  // REL: fraction of the best; ABS: in the metric's unit
  Time cooldown = "0ep";  // >= 0, in the unit of patience; time after a cut that does not count as waiting
  double min_alpha = 0;   // 0 to 1; least multiplier: PyTorch's min_lr relative to the initial rate
  double eps = 1e-8;      // >= 0; cuts that change the multiplier by this or less are skipped
};

// The state of a ReduceOnPlateau, which a program may save and restore.
struct PlateauMemory {
  double alpha = 1;                            // the current multiplier
  std::optional<double> best = {};             // unset: no value so far, or only NaN
  std::optional<std::int64_t> bad_since = {};  // start of the current wait, in the unit of patience

  friend bool operator==(const PlateauMemory&, const PlateauMemory&) = default;
};

// Multiplies the learning rate by `factor` when the metric has not improved for longer than `patience`. The `cooldown`
// after a reduction does not count as waiting. NaN is never a best value. With one evaluation per unit of patience, it
// decides like PyTorch's ReduceLROnPlateau; with more or fewer evaluations, it waits for the same time. Training
// metrics ("train") are those of the last batch of each epoch. A reduction applies from the next batch on, with any
// value of step_schedulers_every_batch. Each trainer starts with a new state, unless set_memory() was called before.
// Throws ConfigError from the constructor, at the start of a fit without an evaluator of this label and metric, and at
// an evaluation that does not report the metric.
class COMPOSER_EXPORT ReduceOnPlateau final : public MetricSchedule {
 public:
  explicit ReduceOnPlateau(ReduceOnPlateauOptions options);

  const std::string& dataloader_label() const override { return options_.dataloader_label; }
  void observe(const State& state) override;
  double multiplier(const ScheduleContext& now) const override;
  void visit_state(StateVisitor& visit) override;
  void begin_run() override;
  void check_fit(const FitOutline& fit, const State& state) const override;

  // Processes a value of the metric; `now` is the timestamp's count in the unit of patience. If `better` is unset and
  // no State has been observed, lower values are better.
  void observe(double value, std::int64_t now);
  const PlateauMemory& memory() const { return memory_; }
  void set_memory(PlateauMemory memory);  // throws ConfigError for an alpha outside of [0, 1]

 private:
  bool is_best(double value) const;
  void reduce();

  ReduceOnPlateauOptions options_;
  std::optional<Better> better_;  // unset: not determined yet
  PlateauMemory memory_;
  bool keeps_memory_ = false;  // set_memory() was called for the next trainer
};

// To read or restore the state, create a std::shared_ptr<ReduceOnPlateau> and pass it to the trainer.
COMPOSER_EXPORT Scheduler reduce_on_plateau(ReduceOnPlateauOptions options);

}  // namespace composer::optim

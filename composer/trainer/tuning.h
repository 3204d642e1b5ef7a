#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/state.h"
#include "composer/core/state_dict.h"
#include "composer/tuning/pace.h"
#include "composer/tuning/tune_cache.h"

namespace composer {

namespace kernels {
class ProductTable;
}

struct Fit;
struct ProcessState;
struct Progress;
struct TrainerOptions;
class Feed;
class Logger;
class Ranks;
class TrainStep;
class Tuner;
class TrainingData;
class WeightsInUse;

// Chooses what .tune covers when a fit begins. Later it compares the times of steps with the measured ones, and may
// choose again.
class Tuning {
 public:
  // The parts of the trainer that it uses. Choices about the process are put into `process`.
  struct Needs {
    const TrainerOptions& options;
    const Ranks& ranks;
    State& state;
    TrainStep& train_step;
    WeightsInUse& weights_in_use;
    Logger& logger;
    const TrainingData& data;
    ProcessState& process;
    std::function<bool()> stops;  // whether to give up
  };
  explicit Tuning(Needs needs) : needs_(std::move(needs)) {}

  // Whether the trainer decides which products our kernels compute. Otherwise the program's settings around the call
  // apply.
  bool decides_products() const;
  void use_saved_products();  // a resumed run uses the products that it began with, even if .tune is off now
  // Called in the first fit. Logs the choices, unless the run is resumed.
  void begin_fit(Fit& fit, const Progress& progress, bool goes_on);

  // Called around forward, loss and backward of a microbatch, whose time is compared with the measured time.
  void start_microbatch();
  void end_microbatch() { watched_.pace.stop(); }
  void warn_if_late();
  void end_epoch(Fit& fit, const Progress& progress);

  const std::vector<std::string>& lines() const { return lines_; }  // one for each choice
  void visit_state(StateVisitor& visit) { visit("tuned", chosen_); }

 private:
  // The reference for the times of steps, if they are compared.
  struct Watched {
    std::string key;         // key of the choices in the cache; empty: they were removed from it
    Batch batch;             // the batch of the trial steps
    int most_threads = 1;    // largest number of threads to choose from
    int times_again = 0;     // number of times that threads were chosen again
    bool disturbed = false;  // whether other programs disturbed the measurement
    Pace pace;
  };

  bool tunes() const;  // `tune`, or products alone
  std::optional<Batch> batch_to_try(Feed& feed, const Progress& progress) const;
  bool chooses_threads_again() const;
  Tuner tuner(const Feed& feed, kernels::ProductTable* table) const;

  Needs needs_;
  std::optional<Tuned> chosen_;  // chosen by this process or in the saved run
  std::vector<std::string> lines_;
  Watched watched_;
};

}  // namespace composer

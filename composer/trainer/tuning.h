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

// What .tune chooses when a fit begins, whether the run keeps the time that was measured then, and what is chosen
// again.
class Tuning {
 public:
  // What it works on. What is chosen of the process comes into force in `process`.
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
  explicit Tuning(Needs needs) : on_(std::move(needs)) {}

  // Whether the trainer says which products our kernels compute; else they are as the program has them around the call.
  bool decides_products() const;
  void use_saved_products();  // a run goes on with those that it began with, though nobody measures any more
  // In the first fit. The choices are logged, unless the run goes on.
  void begin_fit(Fit& fit, const Progress& progress, bool goes_on);

  // Around forward, loss and backward of a microbatch, whose time is compared with what was measured.
  void start_microbatch();
  void end_microbatch() { watched_.pace.stop(); }
  void warn_if_late();
  void end_epoch(Fit& fit, const Progress& progress);

  const std::vector<std::string>& lines() const { return lines_; }  // one for each choice
  void visit_state(StateVisitor& visit) { visit("tuned", chosen_); }

 private:
  // What the times of steps are compared with, where they are.
  struct Watched {
    std::string key;         // of the choices in the cache; empty: they are not there any more
    Batch batch;             // that was tried
    int most_threads = 1;    // to choose from
    int times_again = 0;     // threads have been chosen
    bool disturbed = false;  // by other programs, when it was measured
    Pace pace;
  };

  bool tunes() const;  // `tune`, or products alone
  std::optional<Batch> batch_to_try(Feed& feed, const Progress& progress) const;
  bool chooses_threads_again() const;
  Tuner tuner(const Feed& feed, kernels::ProductTable* table) const;

  Needs on_;
  std::optional<Tuned> chosen_;  // here or in the saved run
  std::vector<std::string> lines_;
  Watched watched_;
};

}  // namespace composer

#pragma once
#include <memory>
#include <optional>

#include "composer/core/time.h"
#include "composer/trainer/loading.h"

namespace composer {

class Calls;
class EvaluationLoop;
class ReplicaCheck;
class Stopping;
class TrainingTime;

// The run of a trainer, as plug-ins have it in state.run. A copy of the state may outlive the trainer: once this is
// closed, or gone, what is asked of it is an error.
class TrainerRun {
 public:
  // Who knows what is asked of it.
  struct Needs {
    RunLoader loader;
    const Calls& calls;
    ReplicaCheck& replicas;
    const EvaluationLoop& evaluation;
    const TrainingTime& time;
    const Stopping& stopping;
  };
  TrainerRun(const Needs& needs, Seconds grace_period);  // puts itself into state.run
  ~TrainerRun() { close(); }
  TrainerRun(const TrainerRun&) = delete;
  TrainerRun& operator=(const TrainerRun&) = delete;
  void load_first();  // what the trainer begins with
  void close();

 private:
  class Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace composer

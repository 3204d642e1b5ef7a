#pragma once
#include <memory>
#include <optional>

#include "composer/core/time.h"
#include "composer/trainer/loading.h"

namespace composer {

class Calls;
class EvaluationLoop;
class ReplicaCheck;
class SignalWatch;
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
    const Stopping& stopping;
    const TrainingTime& time;
  };
  TrainerRun(Needs needs, std::shared_ptr<SignalWatch> signals, Seconds grace_period);  // puts itself into state.run
  ~TrainerRun() { close(); }
  TrainerRun(const TrainerRun&) = delete;
  TrainerRun& operator=(const TrainerRun&) = delete;
  void load_first();  // what the trainer begins with
  void close();       // signals end as well

 private:
  class Shared;
  std::shared_ptr<Shared> shared_;
  std::shared_ptr<SignalWatch> signals_;
};

}  // namespace composer

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

// The implementation of state.run, through which plug-ins ask about their run. A copy of the state may outlive the
// trainer: once the trainer is closed or gone, calls throw.
class TrainerRun {
 public:
  // The parts of the trainer that answer.
  struct Needs {
    RunLoader loader;
    const Calls& calls;
    ReplicaCheck& replicas;
    const EvaluationLoop& evaluation_loop;
    const TrainingTime& time;
    const Stopping& stopping;
  };
  TrainerRun(const Needs& needs, Seconds grace_period);  // sets state.run
  ~TrainerRun() { close(); }
  TrainerRun(const TrainerRun&) = delete;
  TrainerRun& operator=(const TrainerRun&) = delete;
  void load_first();  // loads the checkpoint or weights that the trainer begins with
  void close();

 private:
  class Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace composer

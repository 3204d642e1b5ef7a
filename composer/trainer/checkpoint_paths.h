#pragma once
#include <optional>
#include <string>
#include <vector>

namespace composer {

struct State;
class Ranks;
namespace saving {
class RunSaver;
}

// The paths of a run's checkpoints, on every rank: rank 0 has the list of them, the others what it has shared last.
class CheckpointPaths {
 public:
  CheckpointPaths(const Ranks& ranks, const State& state, saving::RunSaver* saver)  // null on other ranks
      : ranks_(ranks), state_(state), saver_(saver) {}

  void share();                             // all ranks call it
  std::vector<std::string> all() const;     // in the order in which they were written
  std::optional<std::string> best() const;  // by the metric of save_best

 private:
  const Ranks& ranks_;
  const State& state_;
  saving::RunSaver* saver_;
  std::vector<std::string> shared_;
  std::optional<std::string> shared_best_;
};

}  // namespace composer

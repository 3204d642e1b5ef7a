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

// The paths of a run's checkpoints, on every rank. Rank 0 has the list; other ranks have what rank 0 shared last.
class CheckpointPaths {
 public:
  // `saver` is null on ranks other than 0.
  CheckpointPaths(const Ranks& ranks, const State& state, saving::RunSaver* saver)
      : ranks_(ranks), state_(state), saver_(saver) {}

  void share();                             // sends the list of rank 0 to the others; a collective
  std::vector<std::string> all() const;     // in the order of writing
  std::optional<std::string> best() const;  // the best one by the metric of save_best

 private:
  const Ranks& ranks_;
  const State& state_;
  saving::RunSaver* saver_;
  std::vector<std::string> shared_;
  std::optional<std::string> shared_best_;
};

}  // namespace composer

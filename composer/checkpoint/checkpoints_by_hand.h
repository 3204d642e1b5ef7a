#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "composer/checkpoint/run_folder.h"

namespace composer {
class StateVisitor;
struct State;
}  // namespace composer

namespace composer::saving {

class RunSaver;

// The checkpoints that a program writes by save_checkpoint(), and its calls of that function. A restarted program
// repeats its calls until it trains on. A repeated call returns the checkpoint that the original call has written.
class CheckpointsByHand {
 public:
  struct Call {
    std::string name;  // with placeholders
    bool in_fit = false;
    // The program's fit in which the call is made, set once the first fit of this process has begun: only a checkpoint
    // of this fit and moment is then of an earlier call, because earlier processes had not come to later calls.
    std::optional<std::int64_t> resumed_in = {};
  };

  explicit CheckpointsByHand(RunSaver& saver) : saver_(saver) {}  // `saver` must outlive this object

  void check_name(const std::string& name, const State& state) const;  // throws ConfigError
  // The path of the checkpoint that this call, or another one with this name, wrote before the state from which the run
  // was resumed. Empty: the checkpoint is to be written now. Warns if the checkpoint is damaged.
  std::string find_earlier(const Call& call, const State& state);
  // Call before save(). Locks the folder until the result is destroyed, unless a fit has locked it.
  [[nodiscard]] RunFolder::ShortLock lock();
  // Writes a checkpoint that is neither counted for num_checkpoints_to_keep nor deleted; the periodic checkpoint of
  // this batch is still written. Returns its path once it is on disk. Throws CheckpointError if it could not be
  // written, whatever on_failure is.
  std::string save(const Call& call, const State& state);

  // Saves and loads the number of calls.
  void visit_state(StateVisitor& visit);

 private:
  using Counts = std::map<std::string, std::int64_t>;

  bool is_new(const Call& call) const;
  std::string find_on_disk(const std::string& name, const State& state) const;
  void warn_if_damaged(const std::string& path);

  RunSaver& saver_;
  Counts calls_;                        // of this process, by name, outside of fits
  std::optional<Counts> calls_before_;  // at the checkpoint from which the run was resumed; unset: unknown
  std::set<std::string> verified_;      // paths that were returned for repeated calls
};

}  // namespace composer::saving

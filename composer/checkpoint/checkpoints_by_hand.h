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

// The checkpoints that a program writes by save_checkpoint(), and its calls of that. A program that is started again
// repeats its calls until it trains on: such a call is answered with the checkpoint that it has written before.
class CheckpointsByHand {
 public:
  struct Call {
    std::string name;  // with placeholders
    bool in_fit = false;
    // The run has gone on in this process, in this of the program's fits: an earlier process had not come to a later
    // call.
    std::optional<std::int64_t> went_on_in = {};
  };

  explicit CheckpointsByHand(RunSaver& saver) : saver_(saver) {}  // which outlives this

  void check_name(const std::string& name, const State& state) const;  // throws ConfigError
  // The path of what this call, or another of this name, has written before what the run goes on from; empty: it is to
  // be written now. Warns if it is damaged.
  std::string find_earlier(const Call& call, const State& state);
  // Before save(), until the result is destroyed: where no fit has the folder's lock, the call has it.
  [[nodiscard]] RunFolder::ShortLock lock();
  // Writes it: it is neither counted for num_checkpoints_to_keep nor deleted, and the periodic one of this batch is
  // still written. Returns its path once it is on disk. Throws CheckpointError if it could not be written, with any
  // on_failure.
  std::string save(const Call& call, const State& state);

  // The number of calls.
  void visit_state(StateVisitor& visit);

 private:
  using Counts = std::map<std::string, std::int64_t>;

  bool is_new(const Call& call) const;
  std::string find_on_disk(const std::string& name, const State& state) const;
  void warn_if_damaged(const std::string& path);

  RunSaver& saver_;
  Counts calls_;                        // of each name outside of fits, by this process
  std::optional<Counts> calls_before_;  // when what the run goes on from was saved; unset: unknown
  std::set<std::string> verified_;      // paths of what calls were answered with
};

}  // namespace composer::saving

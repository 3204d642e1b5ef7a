#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "composer/checkpoint/part_writer.h"
#include "composer/core/state_dict.h"

namespace composer {

struct State;
struct TrainerOptions;
class Ranks;
namespace saving {
class RunSaver;
}

// What all ranks do when a checkpoint is written of an optimizer whose state is divided among ranks: each rank sends
// its part of the state to rank 0, or writes the part itself.
class CollectiveSaving {
 public:
  struct Shares {
    std::function<StateDict()> whole_optimizer;  // returns the complete state on rank 0; a collective
    std::function<StateDict()> own_part;
  };
  // `saver` is null on ranks other than 0.
  CollectiveSaving(const TrainerOptions& options, const Ranks& ranks, const State& state, saving::RunSaver* saver,
                   Shares shares);

  bool is_needed() const;  // false: rank 0 has all that it saves
  // Called before a fit: checks that every rank sees the folder that rank 0 makes.
  void check_folder() const;
  // `of_first` writes the part of rank 0. With `by_hand`, all ranks throw if one of them cannot write.
  void save(const std::function<void()>& of_first, bool by_hand = false);
  StateDict* whole_optimizer() { return whole_ ? &*whole_ : nullptr; }  // set while rank 0 saves
  void rethrow_error();  // rethrows an error of a part that this rank has written; does not wait
  void wait();           // until the part of this rank is on disk

 private:
  saving::PartWriter& part_writer();

  const TrainerOptions& options_;
  const Ranks& ranks_;
  const State& state_;
  saving::RunSaver* saver_;
  Shares shares_;
  std::optional<StateDict> whole_;
  std::unique_ptr<saving::PartWriter> writer_;  // of a rank other than 0, created with its first part
};

}  // namespace composer

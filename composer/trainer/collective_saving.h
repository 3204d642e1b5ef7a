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

// What all ranks do when a checkpoint is written of an optimizer whose state is divided among them: each gives rank 0
// its part of the state, or writes the part itself.
class CollectiveSaving {
 public:
  struct Shares {
    std::function<StateDict()> whole_optimizer;  // on rank 0; a collective
    std::function<StateDict()> own_part;
  };
  // `saver` is null on other ranks than 0.
  CollectiveSaving(const TrainerOptions& options, const Ranks& ranks, const State& state, saving::RunSaver* saver,
                   Shares shares);

  bool is_needed() const;  // else rank 0 has all that it saves
  // Before a fit: every rank sees the folder that rank 0 makes.
  void check_folder() const;
  // `of_first` is what rank 0 writes. By hand, it is an error on all ranks if one of them cannot write.
  void save(const std::function<void()>& of_first, bool by_hand = false);
  StateDict* whole_optimizer() { return whole_ ? &*whole_ : nullptr; }  // while rank 0 saves it
  void rethrow_error();  // of a part that this rank has written; does not wait
  void wait();           // until it is on disk

 private:
  saving::PartWriter& part_writer();

  const TrainerOptions& options_;
  const Ranks& ranks_;
  const State& state_;
  saving::RunSaver* saver_;
  Shares shares_;
  std::optional<StateDict> whole_;
  std::unique_ptr<saving::PartWriter> writer_;  // of another rank than 0, from its first part on
};

}  // namespace composer

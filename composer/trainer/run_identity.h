#pragma once
#include <map>
#include <optional>
#include <string>

#include "composer/checkpoint/run_lock.h"

namespace composer {

struct State;
struct TrainerOptions;
class Ranks;
namespace saving {
class RunSaver;
}

// Which run a trainer has, as processes that start it again and plug-ins with files of their own know it: as long as
// the run has no checkpoint, a mark in its save_folder tells a later process whose files are there.
class RunIdentity {
 public:
  // `saver` is null on other ranks than 0. `begins_again`: what the run goes on from says so.
  RunIdentity(const TrainerOptions& options, const Ranks& ranks, const State& state, saving::RunSaver* saver,
              bool begins_again)
      : options_(options), ranks_(ranks), state_(state), saver_(saver), begins_again_(begins_again) {}

  // As Run has them, on every rank.
  bool is_resumable() const;
  bool begins_again() const { return begins_again_; }
  std::string text() const;
  std::string claim(const void* by, const char* who, const std::string& folder, const std::string& filename,
                    bool whole);

  // Before INIT, where loggers and callbacks open their files. All ranks call it.
  void begin(bool has_callbacks);
  void refuse();  // INIT has failed: who refuses files of others there has not begun the run
  // The run goes on from a checkpoint from now on, if there is one; the newest may still be being written, unless all
  // are on disk.
  void end_mark_if_saved(bool all_on_disk);
  void end();  // the run has ended well

 private:
  const TrainerOptions& options_;
  const Ranks& ranks_;
  const State& state_;
  saving::RunSaver* saver_;
  bool begins_again_;  // an earlier process has begun the run, and there is no checkpoint to go on from
  std::optional<saving::RunMark> mark_;         // of rank 0, while the run has no checkpoint
  std::map<std::string, const void*> writers_;  // of plug-ins' checkpoints, by folder and filename
};

}  // namespace composer

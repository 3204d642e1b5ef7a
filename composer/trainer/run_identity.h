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

// The identity of a trainer's run for processes that restart it, and for plug-ins with their own files. As long as the
// run has no checkpoint, a mark in its save_folder tells a later process whose files are there.
class RunIdentity {
 public:
  // `saver` is null on ranks other than 0. `begins_again`: whether the resume point says that the run begins again.
  RunIdentity(const TrainerOptions& options, const Ranks& ranks, const State& state, saving::RunSaver* saver,
              bool begins_again)
      : options_(options), ranks_(ranks), state_(state), saver_(saver), begins_again_(begins_again) {}

  // The answers to the functions of Run with these names, on every rank.
  bool is_resumable() const;
  bool begins_again() const { return begins_again_; }
  std::string text() const;
  std::string claim(const void* by, const char* who, const std::string& folder, const std::string& filename,
                    bool whole);

  // Called before INIT, where loggers and callbacks open their files. All ranks call it.
  void begin(bool has_callbacks);
  // Called after INIT has failed, for example because files of another run were rejected: the run has not begun.
  void refuse();
  // Removes the mark if there is a checkpoint from which the run can be resumed. The newest checkpoint may still be
  // being written, unless all are on disk.
  void end_mark_if_saved(bool all_on_disk);
  void end();  // the run has ended normally

 private:
  const TrainerOptions& options_;
  const Ranks& ranks_;
  const State& state_;
  saving::RunSaver* saver_;
  bool begins_again_;  // an earlier process has begun the run, and there is no checkpoint to resume from
  std::optional<saving::RunMark> mark_;         // on rank 0, while the run has no checkpoint
  std::map<std::string, const void*> writers_;  // users of plug-ins' checkpoint files, by folder and filename
};

}  // namespace composer

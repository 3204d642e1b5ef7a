#pragma once
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/manifest.h"
#include "composer/checkpoint/resume_point.h"

namespace composer {
struct Timestamp;
}

namespace composer::saving {

class RunLock;
class Saver;

// The folder of a run's checkpoints, as who trains the run has it: nobody else does meanwhile, and what is there is
// what this run has written or goes on from. It is locked during a fit of a trainer, and for a checkpoint by hand; a
// plug-in's is not, because the trainer's is.
class RunFolder {
 public:
  // What is written there, beside what the saver's options say.
  struct Run {
    std::string name;
    std::string filename;       // of checkpoints, with placeholders
    bool weights_only = false;  // so it never resumes
    bool goes_back = false;     // it may resume from an older checkpoint: later ones are deleted when the fit begins
    bool resumes = true;        // a run of this name goes on from what is there
  };
  // `saver` outlives it. What the run goes on from is known until it is forgotten.
  RunFolder(Saver& saver, Run run, const ResumePoint& from);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Creates the folder, and locks it for the run. ConfigError if another process trains it. A folder that cannot be
  // written is told by fail().
  void lock();
  void unlock();
  // Outside of a fit: locks it for one checkpoint, until the result is destroyed; null: a fit has the lock. Throws
  // CheckpointError if another trainer has written checkpoints since this one was made. What throws leaves the folder
  // unlocked.
  struct Unlock {
    void operator()(RunFolder* locked) const { locked->unlock(); }
  };
  using ShortLock = std::unique_ptr<RunFolder, Unlock>;
  [[nodiscard]] ShortLock lock_between_fits();
  // Before a checkpoint is written: the folder may not have been there when the fit began.
  void lock_if_missed();
  bool is_locked() const { return lock_ != nullptr; }
  // It was renamed or removed while the run trains, and is to be made again: another process may train the run there.
  bool is_lost() const;
  void replace_lost();
  void fail(const std::exception& error) const;  // CheckpointError, or a warning under OnFailure::CONTINUE

  // Throws CheckpointError if the run has been continued elsewhere: its newest checkpoint is neither the one that it
  // resumes from nor one of this saver's.
  void check_newest() const;
  // Throws ConfigError for checkpoints of other runs, and files, that have the names of those to come. A damaged one
  // that the run has gone back from gets another name.
  void check_conflicts(const Timestamp& now) const;
  // Deletes what is later than what a run that goes back goes on from, but for those by hand. CheckpointError if some
  // of that was not there when that was chosen: another trainer trains the run on.
  void delete_later();
  // The link of `best` is moved only by who knows all checkpoints: another process may have trained on since.
  void link_best();
  void forget_resumed() { resumed_.reset(); }
  bool has_resumed() const { return resumed_.has_value(); }

 private:
  void make_and_lock();
  std::vector<Found> all() const;
  // All that is there. Throws CheckpointError if another trainer has written one of the run since this was made.
  std::vector<Found> all_seen() const;

  Saver& saver_;
  Run run_;
  bool locks_ = false;                         // a fit wants the lock, and may not have it yet
  std::unique_ptr<RunLock> lock_;              // null: it is not locked
  std::optional<Manifest> resumed_;            // until a fit has begun
  std::optional<std::set<std::string>> seen_;  // ids; unset: nobody has looked, so none is refused
};

}  // namespace composer::saving

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

// The folder of a run's checkpoints, for the process that trains the run. Ensures that no other process trains it, and
// that the checkpoints there are those that this run has written or was resumed from. A trainer locks its folder during
// a fit and for a checkpoint by hand. A plug-in does not lock its folder, because the trainer's is locked.
class RunFolder {
 public:
  // What is written there, in addition to the options of the saver.
  struct Run {
    std::string name;
    std::string filename;       // of checkpoints, with placeholders
    bool weights_only = false;  // such a run is never resumed
    bool goes_back = false;     // it may resume from an older checkpoint: later ones are deleted when the fit begins
    bool resumes = true;        // a run with this name may resume from the checkpoints there
  };
  // `saver` must outlive this object. The checkpoint of `from` is kept until a fit has begun.
  RunFolder(Saver& saver, Run run, const ResumePoint& from);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  // Creates the folder and locks it for the run. Throws ConfigError if another process trains the run. If the folder
  // cannot be written, calls fail().
  void lock();
  void unlock();
  // Outside of a fit: locks the folder for one checkpoint, until the result is destroyed; null if a fit has the lock.
  // Throws CheckpointError if another trainer has written checkpoints since this one was made. If it throws, the folder
  // is unlocked.
  struct Unlock {
    void operator()(RunFolder* locked) const { locked->unlock(); }
  };
  using ShortLock = std::unique_ptr<RunFolder, Unlock>;
  [[nodiscard]] ShortLock lock_between_fits();
  // Call before a checkpoint is written: the folder may have been missing when the fit began.
  void lock_if_missed();
  bool is_locked() const { return lock_ != nullptr; }
  // Whether the folder was renamed or removed while the run trains, and has to be made again. Another process may then
  // train the run in it.
  bool is_lost() const;
  void replace_lost();
  void fail(const std::exception& error) const;  // throws CheckpointError, or warns under OnFailure::CONTINUE

  // Throws CheckpointError if the run has been continued elsewhere, that is, if its newest checkpoint is neither the
  // one that this process resumes from nor one written by this saver.
  void check_newest() const;
  // Throws ConfigError for checkpoints of other runs, and for files, with names that later checkpoints will get. A
  // damaged checkpoint, before which the run was resumed, is renamed.
  void check_conflicts(const Timestamp& now) const;
  // For a run that goes back: deletes checkpoints later than the one from which it is resumed, except those by hand.
  // Throws CheckpointError if some of them did not exist when that one was chosen, because another trainer then trains
  // the run.
  void delete_later();
  // Moves the link of `best` only if all checkpoints are known, because another process may have trained the run since.
  void link_best();
  void forget_resumed() { resumed_.reset(); }
  bool has_resumed() const { return resumed_.has_value(); }

 private:
  void make_and_lock();
  std::vector<Found> all() const;
  // All checkpoints there. Throws CheckpointError if another trainer has written one of this run since this object was
  // made.
  std::vector<Found> all_seen() const;

  Saver& saver_;
  Run run_;
  bool locks_ = false;                         // a fit needs the lock, and may not have it yet
  std::unique_ptr<RunLock> lock_;              // null: not locked
  std::optional<Manifest> resumed_;            // until a fit has begun
  std::optional<std::set<std::string>> seen_;  // ids; unset: the folder was not listed, so none is rejected
};

}  // namespace composer::saving

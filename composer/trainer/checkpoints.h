#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "composer/checkpoint/checkpoints_by_hand.h"
#include "composer/checkpoint/measured_values.h"
#include "composer/checkpoint/resume_point.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/core/event.h"
#include "composer/core/state_dict.h"
#include "composer/trainer/checkpoint_paths.h"
#include "composer/trainer/collective_saving.h"
#include "composer/trainer/resume_with.h"
#include "composer/trainer/run_identity.h"

namespace composer {

struct FitOutline;
struct Resumption;
struct State;
struct TrainerOptions;
class Feed;
class Ranks;
class ReplicaCheck;

// Decides when a checkpoint is written to a trainer's save_folder. Rank 0 writes the checkpoints, and it alone decides
// what is due, because it has the clock by which seconds are counted. All ranks call all functions at the same places;
// without a save_folder the functions do nothing.
class Checkpoints {
 public:
  // Writes nothing yet.
  Checkpoints(const TrainerOptions& options, const Ranks& ranks, const State& state, ReplicaCheck& replicas,
              const saving::ResumePoint& from, CollectiveSaving::Shares shares);

  RunIdentity& identity() { return identity_; }
  CheckpointPaths& paths() { return paths_; }
  CollectiveSaving& collective() { return collective_; }
  const CollectiveSaving& collective() const { return collective_; }
  // Rank 0 has the values.
  saving::MeasuredValues& measured() { return saver_ ? saver_->measured() : nothing_measured_; }

  // The checks when a fit begins. Anything that would prevent a later checkpoint from being written, or from being
  // compared by save_best, is an error.
  void check_trainers() const;  // trainers of resume_with, before the first fit
  void check_fit(const FitOutline& fit, const Feed& feed, bool may_set_metrics) const;
  void begin_fit(std::int64_t number) const;
  void check_first_batch() const;                   // for a first batch without tokens
  void note_resumed(const Resumption& resumption);  // the first fit of a resumed run has begun
  void set_finished();                              // the run has turned out to be over for good
  void count_from_zero();
  void abandon_fit();  // after an error in the fit
  void end_fit();
  void warn_of_unsaved() const;  // for a fit that the program drops without end()
  void end_run(bool well);  // writes the measured values. Without `well` the run is marked as one to be begun again

  // Saves the beginning of a fit after a pause. The newest checkpoint would resume the previous fit, but the program
  // has begun another one, so the new checkpoint is on disk before training starts.
  void save_begin(bool due);
  void save_if_due(Event event);
  void save_last();
  void warn_if_changed() const;  // at FIT_END, like RunSaver::warn_if_changed()
  // Waits until all checkpoints and the values measured since are on disk, and shares the paths with other ranks.
  void finish();
  void write_measured();                  // for use between fits: the process may end before the next checkpoint
  void warn_of_signal(int signal) const;  // the signal that ended the fit; 0: none
  void wait_for_mirror() const;
  // Saves on the program's request, at this moment of the given fit. check_name() is called before anything else.
  void check_name(const std::string& name) const;
  std::string save_by_hand(const std::string& name, const Resumption& resumption, std::int64_t fit, bool in_fit);

  bool have_batch() const;  // whether the newest checkpoint is of the current batch
  // `weights`: the version of the weights that are saved or were loaded.
  void visit_state(StateVisitor& visit, std::uint64_t weights);

 private:
  void save();  // a periodic checkpoint

  const TrainerOptions& options_;
  const Ranks& ranks_;
  const State& state_;
  ReplicaCheck& replicas_;
  std::unique_ptr<ResumesTogether> trainers_;         // on rank 0: the trainers of resume_with
  std::unique_ptr<saving::RunSaver> saver_;           // on rank 0
  std::optional<saving::CheckpointsByHand> by_hand_;  // on rank 0
  saving::MeasuredValues nothing_measured_;
  RunIdentity identity_;
  CheckpointPaths paths_;
  CollectiveSaving collective_;
};

}  // namespace composer

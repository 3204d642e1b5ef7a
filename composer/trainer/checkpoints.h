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

// The checkpoints of a trainer's save_folder: when one is written. Rank 0 has them, and knows alone what is due: it has
// the clock that seconds are counted by. All ranks call all of this at the same places; without a save_folder nothing
// happens.
class Checkpoints {
 public:
  // Nothing is written yet.
  Checkpoints(const TrainerOptions& options, const Ranks& ranks, const State& state, ReplicaCheck& replicas,
              saving::ResumePoint from, CollectiveSaving::Shares shares);

  RunIdentity& identity() { return identity_; }
  CheckpointPaths& paths() { return paths_; }
  CollectiveSaving& collective() { return collective_; }
  const CollectiveSaving& collective() const { return collective_; }
  saving::MeasuredValues& measured() { return saver_ ? saver_->measured() : nothing_measured_; }  // rank 0 has them

  // When a fit begins. What would prevent a later checkpoint from being written, or from being the best, is an error.
  void check_trainers() const;  // those that resume together, before the first fit
  void check_fit(const FitOutline& fit, const Feed& feed, bool may_set_metrics) const;
  void begin_fit(std::int64_t number) const;
  void check_first_batch() const;            // which has no tokens
  void go_on(const Resumption& resumption);  // the first fit of a run that goes on has begun
  void set_finished();                       // and finds that the run is over for good
  void count_from_zero();
  void abandon_fit();  // an error ends it
  void end_fit();
  void warn_of_unsaved() const;  // it ends without end()
  void end_run(bool well);       // else it is to be begun again. What was measured is written

  // After a pause: where the newest checkpoint is of a fit that would go on, the program has begun another, and the new
  // one is on disk before.
  void save_begin(bool due);
  void save_if_due(Event event);
  void save_last();
  void warn_if_changed() const;  // after FIT_END, as RunSaver
  void finish();                 // all is on disk, with what was measured since, and other ranks know the paths
  void write_measured();         // outside of a fit: the process may end before the next checkpoint
  void warn_of_signal(int signal) const;  // which has ended the fit; 0: none
  void wait_for_mirror() const;
  // By hand, at this moment of that fit. The name is checked before anything is done.
  void check_name(const std::string& name) const;
  std::string save_by_hand(const std::string& name, const Resumption& resumption, std::int64_t fit, bool in_fit);

  bool have_batch() const;                                       // the newest is of this one
  void visit_state(StateVisitor& visit, std::uint64_t weights);  // which are saved, or were loaded

 private:
  void save();  // a periodic one

  const TrainerOptions& options_;
  const Ranks& ranks_;
  const State& state_;
  ReplicaCheck& replicas_;
  std::unique_ptr<ResumesTogether> trainers_;         // of rank 0: what those that resume with this one need to know
  std::unique_ptr<saving::RunSaver> saver_;           // of rank 0
  std::optional<saving::CheckpointsByHand> by_hand_;  // of rank 0
  saving::MeasuredValues nothing_measured_;
  RunIdentity identity_;
  CheckpointPaths paths_;
  CollectiveSaving collective_;
};

}  // namespace composer

#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/run_lock.h"
#include "composer/checkpoint/run_saver.h"
#include "composer/core/event.h"
#include "composer/core/state_dict.h"
#include "composer/trainer/saving_together.h"

namespace composer {

struct FitOutline;
struct Resumption;
struct SaveFolder;
struct State;
struct TrainerOptions;
class Feed;
class Ranks;
class ReplicaCheck;
class ResumesTogether;

// The checkpoints of a trainer's save_folder: when one is written, and what is noted of those that there are. Rank 0
// has them, and knows alone what is due: it has the clock that seconds are counted by. All ranks call all of this at
// the same places; without a save_folder nothing happens.
class Checkpoints {
 public:
  // Nothing is written yet.
  Checkpoints(const TrainerOptions& options, const Ranks& ranks, const State& state, ReplicaCheck& replicas,
              const saving::ResumePoint& from, SavingTogether::Shares shares);
  ~Checkpoints();
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  // As Run has them, on every rank.
  bool is_resumable() const;
  bool begins_again() const { return begins_again_; }
  std::string identity() const;
  std::string claim(const void* by, const char* who, const std::string& folder, const std::string& filename,
                    bool whole);

  // Before INIT, where loggers and callbacks open their files: as long as the run has no checkpoint, a mark tells a
  // later process whose they are.
  void begin_run(bool has_callbacks);
  void refuse_run();        // INIT has failed: who refuses files of others there has not begun the run
  void end_run(bool well);  // else it is to be begun again. What was noted is written

  // When a fit begins. What would prevent a later checkpoint from being written, or from being the best, is an error.
  void check_trainers() const;  // those that resume together, before the first fit
  void check_fit(const FitOutline& fit, const Feed& feed, bool may_set_metrics) const;
  void begin_fit(std::int64_t number) const;
  void check_parts() const { together_.check_folder(saver_.get()); }
  void check_first_batch() const;  // which has no tokens
  void count_from_zero();
  void abandon_fit();  // an error ends it
  void end_fit();
  void warn_of_unsaved() const;  // it ends without end()

  // After a pause: where the newest checkpoint is of a fit that would go on, the program has begun another, and the new
  // one is on disk before.
  void save_begin(bool due);
  void save_if_due(Event event);
  void save_last();
  void finish();       // all is on disk, with what was measured since, and other ranks know the paths
  void write_notes();  // the same outside of a fit: the process may end before the next checkpoint
  void share_paths();
  void tell_interrupted(int signal) const;
  void wait_for_mirror() const;
  // By hand, at this moment of that fit. The name is checked before anything is done.
  void check_name(const std::string& name) const;
  std::string save_by_hand(const std::string& name, const Resumption& resumption, std::int64_t fit, bool in_fit);

  // As RunSaver has them.
  void note_begun(const Resumption& resumption);
  void note_finish() {
    if (saver_) saver_->note_finish();
  }
  void note_step() {
    if (saver_) saver_->note_step(state_);
  }
  void note_trained() {
    if (saver_) saver_->note_trained(state_);
  }
  void note_metrics() {
    if (saver_) saver_->note_metrics(state_);
  }
  void note_evaluation() {
    if (saver_) saver_->note_evaluation(state_);
  }
  void tell_changed() const {
    if (saver_) saver_->tell_changed(state_);
  }

  bool need_all_ranks() const { return together_.is_needed(); }  // to be written
  bool have_batch() const;                                       // the newest is of this one
  std::vector<std::string> paths() const;                        // in the order in which they were written
  std::optional<std::string> best() const;
  StateDict* whole_optimizer() { return together_.whole_optimizer(); }
  void visit_state(StateVisitor& visit, std::uint64_t weights);  // which are saved, or were loaded

 private:
  struct Paths {
    std::vector<std::string> all;
    std::optional<std::string> best;
  };

  void make_saver(const saving::ResumePoint& from);
  bool is_new_call(const std::string& name) const;
  std::string made_before(const std::string& name, const Resumption& resumption, std::int64_t fit, bool is_new) const;
  bool is_agreed(bool due) const;
  void save();
  void write();
  void end_mark_if_saved();

  const TrainerOptions& options_;
  const Ranks& ranks_;
  const State& state_;
  ReplicaCheck& replicas_;
  std::unique_ptr<ResumesTogether> trainers_;  // of rank 0: what those that resume with this one need to know
  std::unique_ptr<saving::RunSaver> saver_;    // of rank 0
  std::optional<saving::RunMark> mark_;        // likewise, while it has no checkpoint
  bool begins_again_ = false;  // an earlier process has begun the run, and there is no checkpoint to go on from
  Paths of_rank_0_;            // as another rank knows them
  SavingTogether together_;
  // Of rank 0: how often the program has asked for a checkpoint of each name outside of its fits, which it does again
  // when it is started again; and how often when what the run goes on from was saved; unset: unknown.
  using Calls = std::map<std::string, std::int64_t>;
  Calls calls_;
  std::optional<Calls> calls_before_;
  std::map<std::string, const void*> writers_;  // of plug-ins' checkpoints, by folder and filename
};

}  // namespace composer

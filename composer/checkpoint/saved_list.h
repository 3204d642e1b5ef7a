#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/manifest.h"
#include "composer/checkpoint/retention.h"
#include "composer/checkpoint/save_options.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

// What a checkpoint is, beside what its manifest says.
struct Planned {
  bool by_hand = false;       // it is not counted for `keep` and never deleted, and is written even if `keep` is 0
  std::uint64_t weights = 0;  // which it has, as Saved says
  bool is_rolling = false;    // its name is that of every moment, so that each replaces the one before
  std::optional<std::int64_t> fit = {};  // in which it is written, where one of another fit is to stay beside it
};

// The metric of `best`, and which values of it are better: as long as nobody knows, none is worse than another.
class COMPOSER_EXPORT BestMetric {
 public:
  explicit BestMetric(std::optional<Best> best = {});
  bool is_set() const { return best_.has_value(); }
  std::string name() const { return best_ ? best_->metric : ""; }
  const std::optional<Better>& better() const { return better_; }
  bool is_declared() const { return best_ && best_->better; }
  void prefer(const std::optional<Better>& better) { better_ = better; }  // if the options do not say
  double value_in(const std::map<std::string, double>& metrics) const;    // NaN: it was not measured on these weights

 private:
  std::optional<Best> best_;
  std::optional<Better> better_;  // unset: nobody has said
};

// Metrics to be noted in the manifest of a checkpoint that is written already.
struct Note {
  std::string name, id;  // of the checkpoint
  std::map<std::string, double> metrics;
};

// The checkpoints of a run: their names, their values, and which are to be deleted. A value: it knows of no file and of
// no thread. Of the next one it is told in three steps: plan() when the checkpoint's own state is taken, which has the
// list with it, send() when it is written, and settle() when that has ended. Each entry is there once, whether it stays
// or goes when the planned one is written, so that what is noted meanwhile holds either way.
class COMPOSER_EXPORT SavedList {
 public:
  enum class Outcome : std::uint8_t {
    WRITTEN,
    IN_PLACE,  // a step after the renaming failed
    FAILED,
  };
  // What is to be done for one that is planned.
  struct Sent {
    std::vector<std::string> retired;  // to be deleted once it is written
    std::string best;                  // which is the best then; empty: none
    bool has_values = false;
    std::vector<Note> notes;  // to be written into others
  };
  // What is in the folder under a name.
  struct Folder {
    std::function<bool(const std::string&name)> is_gone, is_free;  // is_free: nothing, or a checkpoint of this run
  };
  struct Choice {
    std::string name;
    std::optional<double> value;  // of the same weights, which has the name already
  };

  // `keep`: number of checkpoints; -1: all, 0: none is written. `best`: those with the best metric are kept, and the
  // newest in addition.
  explicit SavedList(std::int64_t keep = -1, std::optional<Best> best = {});

  // What there is, with the one that is planned or being written, and without those that it replaces: oldest first.
  std::vector<std::string> names() const;
  const Saved* find(const std::string& name) const;  // null: none
  // The one that was saved by hand as `name`, also where choose_name() has given it another one.
  const Saved* find_by_hand(const std::string& name) const;
  std::string newest() const { return all_.empty() ? "" : all_.back().saved.name; }  // empty: there is none
  const Saved* best() const;                      // by the metric; null: none, or none has a value
  bool has_value() const;                         // whether one of them has
  bool has_weights(std::uint64_t weights) const;  // whether one that was written since the run was loaded does
  bool lacks_value(std::int64_t batch) const;     // the newest is of this batch, and has none
  std::vector<std::string> retired() const;       // to be deleted, and not sent
  const std::string& parent() const { return parent_; }
  bool knows(const std::string& id) const;  // of one that was sent or adopted

  // The name of the manifest, or that with "-2" and so on behind it, so that no checkpoint of the run with other
  // weights of the same moment is replaced.
  Choice choose_name(const Manifest& manifest, const Planned& planned, const Folder& folder) const;
  // What was planned before, and not sent, was never planned. Not while one that was sent is not settled.
  void plan(const Manifest& manifest, const Planned& planned);
  void drop_plan();                              // unless it was sent
  std::optional<Sent> send(Manifest& manifest);  // gives it parent and number; nullopt: none is planned
  // `undeleted`: of what was to be deleted. What could not be noted or deleted is sent with the next one. Without one
  // that was sent nothing happens.
  void settle(Outcome outcome, std::vector<std::string> undeleted);

  // Metrics that were measured on these weights: the checkpoints that have them, and no value, get that of `best`, and
  // are to be noted.
  void add_metrics(std::uint64_t weights, const std::map<std::string, double>& metrics);
  bool has_notes() const { return !notes_.empty(); }
  std::vector<Note> take_notes();
  void queue_loaded();  // values that the list had when it was loaded, and manifests have not, are to be noted in these
  void forget_moments();  // time is reset: batches of now are others, but for what was saved before the first
  void set_weights(const std::string& name, std::uint64_t weights);  // that the one of this name has them
  BestMetric& metric() { return metric_; }

  void drop(const std::string& name);  // it is not there any more
  void set_retired(std::vector<std::string> names) { retired_ = std::move(names); }
  void adopt(const Manifest& resumed);       // the run resumes from it: it becomes the parent of the next one
  void count_from(const Manifest& there);    // the next one has a larger number
  void keep_later(const Manifest& by_hand);  // of a later moment than that from which the run goes on
  // What an earlier process of the run has written later than what the run goes on from, at this batch.
  void adopt_unlisted(const std::vector<Manifest>& unlisted, std::int64_t batch);

  // `weights`: those that are saved with the list, or were loaded with it, at this batch. `undeleted`: to be named
  // beside those that are retired.
  void visit_state(StateVisitor& visit, std::uint64_t weights, std::int64_t batch, std::vector<std::string> undeleted);
  // After loading: an evaluation that came after a checkpoint, as the last one of a fit, has noted its value in the
  // manifest alone; and a process may have ended before a value that the list has was noted there.
  void compare(const std::string& name, const Manifest& there);

 private:
  struct Entry {
    Saved saved;
    bool goes = false;  // once the planned one is written
  };
  struct Plan {
    std::vector<std::string> retired;  // all that are to be deleted once it is written
    std::int64_t number = 0;
    std::optional<std::vector<Note>> sent;  // unset: it is not sent yet
  };
  Entry entry_of(const Manifest& manifest) const;
  std::vector<Saved> visible() const;

  std::int64_t keep_;
  BestMetric metric_;
  std::vector<Entry> all_;  // the planned one is the last
  std::optional<Plan> plan_;
  std::vector<std::string> retired_;  // without the plan
  std::string parent_;                // without the plan
  std::int64_t number_ = 0;           // of the newest without the plan
  std::vector<Note> notes_;
  std::vector<Note> loaded_;  // what queue_loaded() adds
  std::vector<std::string> ids_;
};

}  // namespace composer::saving

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

// What is known of a checkpoint in addition to its manifest.
struct Planned {
  bool by_hand = false;       // not counted for `keep`, never deleted, and written even if `keep` is 0
  std::uint64_t weights = 0;  // version of its weights, as in Saved
  bool is_rolling = false;    // its name does not depend on the moment, so each checkpoint replaces the previous one
  // The fit in which it is written, if a checkpoint of another fit is to be kept beside it.
  std::optional<std::int64_t> fit = {};
};

// The metric of `best`, and which of its values are better. While that is unknown, no value is worse than another.
class COMPOSER_EXPORT BestMetric {
 public:
  explicit BestMetric(std::optional<Best> best = {});
  bool is_set() const { return best_.has_value(); }
  std::string name() const { return best_ ? best_->metric : ""; }
  const std::optional<Better>& better() const { return better_; }
  bool is_declared() const { return best_ && best_->better; }
  void prefer(const std::optional<Better>& better) { better_ = better; }  // if the options do not say it
  double value_in(const std::map<std::string, double>& metrics) const;    // NaN: not measured on these weights

 private:
  std::optional<Best> best_;
  std::optional<Better> better_;  // unset: unknown yet
};

// Metrics that are to be written into the manifest of an existing checkpoint.
struct Note {
  std::string name, id;  // of the checkpoint
  std::map<std::string, double> metrics;
};

// The checkpoints of a run: their names, their values, and which are to be deleted. A plain value, without files and
// threads. The next checkpoint is added in three steps: plan() when its state is taken, which contains the list; send()
// when it is written; and settle() when the write has ended. Each checkpoint has one entry, whether it stays or is
// removed after the planned one is written, so values added meanwhile apply in both cases.
class COMPOSER_EXPORT SavedList {
 public:
  enum class Outcome : std::uint8_t {
    WRITTEN,
    IN_PLACE,  // a step after the renaming failed
    FAILED,
  };
  // The work for a planned checkpoint.
  struct Sent {
    std::vector<std::string> retired;  // to be deleted after the write
    std::string best;                  // name of the best one after the write; empty: none
    bool has_values = false;
    std::vector<Note> notes;  // to be written into manifests of other checkpoints
  };
  // Tells what is in the folder under a name.
  struct Folder {
    // Is_free: nothing is there, or a checkpoint of this run.
    std::function<bool(const std::string&name)> is_gone, is_free;
  };
  struct Choice {
    std::string name;
    std::optional<double> value;  // of a checkpoint with this name and the same weights
  };

  // `keep`: number of checkpoints; -1: all, 0: none is written. With `best`, those with the best metric are kept, and
  // the newest in addition.
  explicit SavedList(std::int64_t keep = -1, std::optional<Best> best = {});

  // The checkpoints with the one that is planned or being written, without those that it replaces, oldest first.
  std::vector<std::string> names() const;
  const Saved* find(const std::string& name) const;  // null: none
  // The checkpoint that was saved by hand as `name`, also if choose_name() has given it another name.
  const Saved* find_by_hand(const std::string& name) const;
  std::string newest() const { return all_.empty() ? "" : all_.back().saved.name; }  // empty: there is none
  const Saved* best() const;  // by the metric; null: none has a value
  bool has_value() const;     // whether any checkpoint has a value
  // Whether a checkpoint written since the run was loaded has these weights.
  bool has_weights(std::uint64_t weights) const;
  bool lacks_value(std::int64_t batch) const;  // the newest checkpoint is of this batch and has no value
  std::vector<std::string> retired() const;    // to be deleted, and not sent yet
  const std::string& parent() const { return parent_; }
  bool knows(const std::string& id) const;  // whether a checkpoint with this id was sent or adopted

  // Returns the name in the manifest, or that name with "-2" and so on, so that no checkpoint of the run with other
  // weights of the same moment is replaced.
  Choice choose_name(const Manifest& manifest, const Planned& planned, const Folder& folder) const;
  // Replaces a plan that was not sent. Must not be called between send() and settle().
  void plan(const Manifest& manifest, const Planned& planned);
  void drop_plan();                              // does nothing if the plan was sent
  std::optional<Sent> send(Manifest& manifest);  // sets the manifest's parent and number; nullopt: nothing is planned
  // `undeleted`: retired checkpoints that could not be deleted. Notes and deletions that failed are sent with the next
  // checkpoint. Does nothing without a sent checkpoint.
  void settle(Outcome outcome, std::vector<std::string> undeleted);

  // Adds metrics measured on these weights. Checkpoints with these weights and without a value get the value of `best`,
  // and the metrics are queued as notes for their manifests.
  void add_metrics(std::uint64_t weights, const std::map<std::string, double>& metrics);
  bool has_notes() const { return !notes_.empty(); }
  std::vector<Note> take_notes();
  void queue_loaded();  // queues values that were loaded with the list for manifests that lack them
  // Time is reset: the batches of earlier checkpoints do not count any more, except of those saved before the first
  // batch.
  void forget_moments();
  void set_weights(const std::string& name, std::uint64_t weights);  // sets the version of a checkpoint's weights
  BestMetric& metric() { return metric_; }

  void drop(const std::string& name);  // removes a checkpoint that no longer exists
  void set_retired(std::vector<std::string> names) { retired_ = std::move(names); }
  void adopt(const Manifest& resumed);       // the run is resumed from it: it becomes the parent of the next one
  void count_from(const Manifest& there);    // the next checkpoint gets a larger number
  void keep_later(const Manifest& by_hand);  // adds one of a later moment than the one from which the run is resumed
  // Adds checkpoints that an earlier process of the run has written after the one from which this process was resumed,
  // at this batch.
  void adopt_unlisted(const std::vector<Manifest>& unlisted, std::int64_t batch);

  // `weights`: version of the weights that are saved or were loaded with the list, at this batch. `undeleted` is saved
  // with the retired checkpoints.
  void visit_state(StateVisitor& visit, std::uint64_t weights, std::int64_t batch, std::vector<std::string> undeleted);
  // After loading, exchanges values with the manifest. An evaluation after a checkpoint, such as the last one of a fit,
  // has added its value only to the manifest, and a process may have ended before it added a value of the list to the
  // manifest.
  void compare(const std::string& name, const Manifest& there);

 private:
  struct Entry {
    Saved saved;
    bool goes = false;  // is removed once the planned checkpoint is written
  };
  struct Plan {
    std::vector<std::string> retired;  // all that are deleted once the planned checkpoint is written
    std::int64_t number = 0;
    std::optional<std::vector<Note>> sent;  // unset: not sent yet
  };
  Entry entry_of(const Manifest& manifest) const;
  std::vector<Saved> visible() const;

  std::int64_t keep_;
  BestMetric metric_;
  std::vector<Entry> all_;  // the planned checkpoint is the last
  std::optional<Plan> plan_;
  std::vector<std::string> retired_;  // without those of the plan
  std::string parent_;                // without the plan
  std::int64_t number_ = 0;           // of the newest checkpoint without the plan
  std::vector<Note> notes_;
  std::vector<Note> loaded_;  // for queue_loaded()
  std::vector<std::string> ids_;
};

}  // namespace composer::saving

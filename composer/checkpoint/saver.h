#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/mirror.h"
#include "composer/checkpoint/option_names.h"
#include "composer/checkpoint/retention.h"
#include "composer/checkpoint/save_options.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

struct SaverOptions {
  std::filesystem::path folder = {};
  std::string latest = "latest";  // the link to the newest; empty: none
  std::int64_t keep = -1;         // number of this run's checkpoints; -1: all, 0: none is written
  std::optional<Best> best = {};  // keep those with the best metric, and the newest in addition
  OnFailure on_failure = OnFailure::FAIL;
  bool asynchronous = true;  // false: save() returns when the checkpoint is on disk; deletions stay in the background
  bool overwrite = false;    // also replace checkpoints of other runs
  std::string run_id = {};   // empty: generated
  // Time until the process must have ended; nullopt: unknown. OnFailure::RETRY gives up when a write that takes as long
  // as the last one would end later. Called on the writing thread. Not set: no limit.
  std::function<std::optional<std::chrono::steady_clock::duration>()> time_left = {};
  std::shared_ptr<Mirror> mirror = {};  // gets what is written; null: none
  OptionNames names = {};
};

// What a checkpoint is, beside what its manifest says.
struct Planned {
  bool by_hand = false;       // it is not counted for `keep` and never deleted, and is written even if `keep` is 0
  std::uint64_t weights = 0;  // which it has, as Saved says
  bool is_rolling = false;    // its name is that of every moment, so that each replaces the one before
  std::int64_t fit = 0;       // in which it is written, where one of another fit is to stay beside it
};

COMPOSER_EXPORT void check(const SaverOptions& options, OptionNames names = {});  // throws ConfigError
COMPOSER_EXPORT std::string new_id();                                             // 16 random hexadecimal digits

// Writes checkpoints, one at a time, on a background thread: save() returns when the tensors are copied. Use from one
// thread.
class COMPOSER_EXPORT Saver {
 public:
  explicit Saver(SaverOptions options, std::shared_ptr<FileSystem> files = std::make_shared<FileSystem>());
  ~Saver();  // waits until everything is written; an error becomes a warning

  // Call plan(), then save(). After plan(), saved() and visit_state() include the new checkpoint. save() writes
  // state["model"] to a file of its own, copies tensors if it writes in the background, and fills in the manifest's id,
  // run_id, parent and number. Both wait for the previous write and rethrow its error, so when save() returns, every
  // earlier checkpoint is on disk.
  void plan(const Manifest& manifest, const Planned& planned = {});
  void save(Manifest manifest, const StateDict& state);
  // Before plan(): leaves the manifest the name that it has, or gives it another, with "-2" and so on behind it, so
  // that no checkpoint of the run with other weights of the same moment is replaced. Waits as plan() does.
  void choose_name(Manifest& manifest, const Planned& planned);
  // The name of the one that was saved by hand as `name`; without one `name`.
  std::string name_by_hand(const std::string& name) const;
  bool has_by_hand(const std::string& name) const;
  // Before plan(): makes the folder of a checkpoint of which ranks 1 to ranks - 1 write parts, and returns what they
  // need to know (PartTicket). save() then waits in the background until the parts are there. Waits as save() does.
  // Empty under OnFailure::CONTINUE, with a warning, if the folder cannot be made: then there is nothing to save.
  std::string open_parts(int ranks);
  void drop_parts() { parts_.reset(); }  // instead of plan() and save()
  // A rank is lost: parts that are missing are not waited for much longer.
  void abandon(std::chrono::milliseconds patience = std::chrono::seconds(5)) { patience_ = patience.count(); }
  void rethrow_error();  // of the background write, if that has ended; does not wait
  void wait();           // returns when everything is on disk; throws likewise
  // Metrics that were measured on these weights: the checkpoints that have them, and no value, get that of `best`. They
  // are noted in the manifest when the next one is written, or by write_notes().
  void add_metrics(std::uint64_t weights, const std::map<std::string, double>& metrics);
  bool has_weights(std::uint64_t weights) const;  // whether a checkpoint that was written since the run was loaded does
  bool lacks_value(std::int64_t batch) const;     // the newest is of this batch, and has none
  void forget_moments();  // time is reset: batches of now are others, but for what was saved before the first
  bool has_notes() const { return !added_.empty(); }
  void write_notes();  // wait(), then notes what was added
  void link_best() { link_best(best_name()); }
  // After wait(): why the last write failed, under OnFailure::CONTINUE; empty if it succeeded.
  const std::string& failure() const { return failure_; }
  // Whether the newest has come to be on disk, or has failed. For any thread.
  const std::shared_future<bool>& written() const { return written_; }

  // Throws ConfigError for a name, run or state that a checkpoint cannot hold. Writes nothing.
  void check_writable(Manifest manifest, const StateDict& state) const;
  // Creates the folder and writes a small file there. Throws FileError.
  void probe() { folder_.probe(); }
  void free_links();
  // Deletes unfinished and outdated checkpoints that a killed process left.
  void clean_up();

  // Names of the existing checkpoints, in the order in which they were written. The last may still be being written.
  std::vector<std::string> saved() const;
  bool has_periodic(const std::string& name) const;  // one of these, and not saved by hand
  // Which values are better, if the options do not say. As long as nobody knows, no checkpoint is deleted for its
  // value.
  void prefer(Better better) { better_ = better; }
  bool has_direction() const { return better_.has_value(); }
  bool has_value() const;     // whether one of them has
  const Saved* best() const;  // by the metric of `best`; null: none, or none has a value
  void retire(const std::string& name) { list_.retired.push_back(name); }
  // Makes `latest` lead to that checkpoint, or with an empty name to none. What fails is a warning.
  void link_latest(const std::string& name, const std::string& run_name);
  // Names of those that clean_up() is to delete.
  const std::vector<std::string>& retired() const { return list_.retired; }
  // `weights`: those that are saved with the list, or were loaded with it, at this batch.
  void visit_state(StateVisitor& visit, std::uint64_t weights = 0, std::int64_t batch = -1);
  void take_run_id(const std::string& run_id);  // before anything is written
  void adopt(const Manifest& resumed);          // the run resumes from it; it becomes the parent of the next one
  // Lists what an earlier process of this run has written later than what the run goes on from, at this batch. Throws
  // FileError.
  std::vector<Manifest> adopt_left(std::int64_t batch);
  // One of this run by hand of a later moment than that from which it goes on; it is not deleted.
  void keep_later(const Manifest& by_hand) {
    list_.saved.insert(list_.saved.begin(), entry_of(by_hand));
    ids_.push_back(by_hand.id);
  }
  // Values that the list had when it was loaded, and manifests do not have, are to be noted in these.
  void note_loaded();
  void note_weights(const std::string& name, std::uint64_t weights);  // that the one of this name has them
  void count_from(const Manifest& there);                             // the next one has a larger number
  // Whether save() has written the checkpoint with this id, or adopt() has taken it.
  bool knows(const std::string& id) const;
  // Duration of the last write; 0 before the first. From any thread.
  std::chrono::duration<double> last_write_time() const { return std::chrono::duration<double>(write_seconds_); }
  const SaverOptions& options() const { return options_; }
  FileSystem& files() const { return *files_; }

 private:
  struct Job;
  // The state of saved() and visit_state().
  struct List {
    std::vector<Saved> saved;
    std::vector<std::string> retired;  // to be deleted once the planned one is written
    std::string parent;
    std::int64_t number = 0;  // of the newest
  };
  enum class Outcome : std::uint8_t {
    WRITTEN,
    IN_PLACE,  // a step after the renaming failed
    FAILED,
  };
  // To be noted in a manifest that is written already.
  struct Added {
    std::string name, id;
    std::map<std::string, double> metrics;
  };
  const Saved* find(const std::string& name) const;
  bool may_replace(const Saved& old, const Manifest& manifest, const Planned& planned) const;
  bool is_gone(const std::string& name) const;
  bool is_free(const std::string& name) const;
  double value_of(const std::map<std::string, double>& metrics) const;
  void settle_value(Saved& saved);
  Saved entry_of(const Manifest& manifest) const;
  std::string best_name() const { return best() ? best()->name : ""; }
  std::string best_link() const { return options_.best && !options_.latest.empty() ? Best::kLink : ""; }
  void note(const std::vector<Added>& added);
  void link_best(const std::string& name);
  void unlink_others(const std::string& run_name);
  void settle();
  void remove_leftovers();
  void write(const Job& job);
  void try_write(const Job& job);
  void write_and_tell(Job& job);
  void write_now(Job job);
  void start_writing(Job job);
  void delete_retired(const Job& job);
  bool pause(std::chrono::steady_clock::duration pause) const;

  SaverOptions options_;
  std::shared_ptr<FileSystem> files_;
  CheckpointFolder folder_;
  std::optional<Better> better_;                    // unset: nobody has said
  List list_, before_;                              // before_: without the one that is planned or being written
  std::vector<Added> added_, sent_;                 // sent_: with the checkpoint that is being written
  std::vector<Added> loaded_;                       // what note_loaded() adds
  std::vector<std::string> ids_;                    // of what it has written and adopted
  bool planned_ = false;                            // planned, but not saved yet
  std::unique_ptr<StateDict> copy_;                 // its memory is reused
  std::unique_ptr<CheckpointFolder::Parts> parts_;  // of the next checkpoint; null: it has none
  std::atomic<std::int64_t> patience_ = -1;         // milliseconds; -1: no rank is lost
  std::atomic<double> write_seconds_ = 0;
  // Written by the background thread until wait() has returned.
  Outcome outcome_ = Outcome::WRITTEN;
  std::string failure_;
  bool cleaned_ = false;
  std::vector<std::string> undeleted_;
  std::string linked_;  // the checkpoint that the link of `best` leads to; empty: unknown
  std::future<void> writing_;
  std::shared_future<bool> written_;
};

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kStateFile = "state.safetensors";

// Reads a checkpoint written by Saver. "model" always exists. Parts of several ranks become one: "optimizer" has the
// state of all parameters, and on as many ranks as have written it, algorithms and callbacks have that of this rank.
COMPOSER_EXPORT StateDict load(const Found& checkpoint, int rank = 0, int ranks = 1);

// Reads every byte of it, and throws CheckpointError for damage.
COMPOSER_EXPORT void verify(const Found& checkpoint);

}  // namespace composer::saving

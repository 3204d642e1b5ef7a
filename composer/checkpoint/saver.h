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
#include "composer/checkpoint/save_options.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

struct SaverOptions {
  std::filesystem::path folder;
  std::string latest = "latest";  // the link to the newest; empty: none
  std::int64_t keep = -1;         // so many of those that this run has written; -1: all, 0: none is written at all
  std::optional<Best> best = {};  // keep those with the best metric, and always the newest
  OnFailure on_failure = OnFailure::FAIL;
  bool asynchronous = true;  // else save() returns when the checkpoint is on the disk; others are deleted behind it
  bool overwrite = false;    // also what other runs have written
  std::string run_id;        // empty: a new one is made
  // Until the process must have ended; empty: that is not known. OnFailure::RETRY gives up when a write that takes as
  // long as the last one would not end before that. Called on the thread that writes. Not set: no limit.
  std::function<std::optional<std::chrono::steady_clock::duration>()> time_left = {};
};

COMPOSER_EXPORT void check(const SaverOptions& options);  // throws ConfigError

// Writes checkpoints, one at a time, on a thread of its own: save() returns when the tensors are copied. Call from one
// thread.
class COMPOSER_EXPORT Saver {
 public:
  explicit Saver(SaverOptions options, std::shared_ptr<FileSystem> files = std::make_shared<FileSystem>());
  ~Saver();  // after everything is written; what goes wrong then is a warning

  // First plan(), so that saved() and visit_state() already know of it; then save(). In `state`, "model" gets a file of
  // its own; tensors are copied if that is done on another thread. Both wait for the one before, and throw what that
  // has thrown: when save() returns, all but this one are on the disk. Fills in the manifest's id, run_id and parent.
  void plan(const std::string& name, const std::map<std::string, double>& metrics);
  void plan_unlisted(const std::string& name);  // likewise, for one that is neither listed nor ever deleted
  void save(Manifest manifest, const StateDict& state);
  void check();  // throws what writing has thrown since; does not wait
  void wait();   // until everything is on the disk; throws likewise

  // Names of those that are there, oldest first; the last may be on its way.
  const std::vector<std::string>& saved() const { return list_.saved; }
  void visit_state(StateVisitor& visit);
  void adopt(const Manifest& resumed);  // goes on from there: the next one's parent
  // What the last one took until it was on the disk; 0: there is none yet. From any thread.
  std::chrono::duration<double> last_write_time() const { return std::chrono::duration<double>(write_seconds_); }
  const SaverOptions& options() const { return options_; }

 private:
  struct Job;
  // What saved() and the others are made of.
  struct List {
    std::vector<std::string> saved;
    std::vector<double> values;        // of the best metric, beside saved
    std::vector<std::string> retired;  // to delete once the planned one is there
    std::string parent;
  };
  void settle();
  void retire();
  void remove_leftovers();
  void write(const Job& job);
  void try_write(const Job& job);
  bool pause(std::chrono::steady_clock::duration pause) const;

  SaverOptions options_;
  std::shared_ptr<FileSystem> files_;
  CheckpointFolder folder_;
  List list_, before_;               // before_: without the one that is planned or on its way
  std::unique_ptr<StateDict> copy_;  // its memory is used again
  std::atomic<double> write_seconds_ = 0;
  // Of the thread that writes, until wait() has returned.
  bool failed_ = false, cleaned_ = false;
  std::vector<std::string> undeleted_;
  std::future<void> writing_;
};

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kStateFile = "state.safetensors";

// What Saver has written. "model" is there in any case.
COMPOSER_EXPORT StateDict load(const Found& checkpoint);

}  // namespace composer::saving

#pragma once
#include <cstdint>
#include <exception>
#include <filesystem>
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
  bool asynchronous = true;
  bool overwrite = false;  // also what other runs have written
  std::string run_id;      // empty: a new one is made
};

COMPOSER_EXPORT void check(const SaverOptions& options);  // throws ConfigError

// Writes checkpoints, one at a time, on a thread of its own: save() returns when the tensors are copied. Call from one
// thread.
class COMPOSER_EXPORT Saver {
 public:
  explicit Saver(SaverOptions options, std::shared_ptr<FileSystem> files = std::make_shared<FileSystem>());
  ~Saver();  // after everything is written; what goes wrong then is a warning

  // First plan(), so that saved() and visit_state() already know of it; then save(). In `state`, "model" gets a file of
  // its own; tensors are copied. Waits for the one before, and throws what that has thrown. Fills in the manifest's id,
  // run_id and parent.
  void plan(const std::string& name, const std::map<std::string, double>& metrics);
  void save(Manifest manifest, const StateDict& state);
  void check();  // throws what writing has thrown since; does not wait
  void wait();   // until everything is on the disk; throws likewise

  // Names of those that are there, oldest first; the last may be on its way.
  const std::vector<std::string>& saved() const { return saved_; }
  void visit_state(StateVisitor& visit);
  void adopt(const Manifest& resumed);  // goes on from there: the next one's parent
  const SaverOptions& options() const { return options_; }

 private:
  struct Job;
  void retire();
  void write(const Job& job);
  void try_write(const Job& job);

  SaverOptions options_;
  std::shared_ptr<FileSystem> files_;
  CheckpointFolder folder_;
  std::vector<std::string> saved_;
  std::vector<double> values_;        // of the best metric, beside saved_
  std::vector<std::string> retired_;  // to delete once the planned one is there
  std::string parent_;
  std::unique_ptr<StateDict> copy_;  // its memory is used again
  std::future<void> writing_;
};

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kStateFile = "state.safetensors";

// What Saver has written. "model" is there in any case.
COMPOSER_EXPORT StateDict load(const Found& checkpoint);

}  // namespace composer::saving

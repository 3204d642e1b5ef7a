#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/mirror.h"
#include "composer/checkpoint/option_names.h"
#include "composer/checkpoint/save_options.h"
#include "composer/checkpoint/saved_list.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

COMPOSER_EXPORT std::string new_id();  // 16 random hexadecimal digits

// Writes checkpoints one at a time on a background thread, moves the links, and deletes. It has no list of checkpoints:
// each checkpoint comes with the work to do for it. Use from one thread.
class COMPOSER_EXPORT CheckpointWriter {
 public:
  // The result of the last write.
  struct Result {
    SavedList::Outcome outcome = SavedList::Outcome::WRITTEN;
    std::vector<std::string> undeleted;  // checkpoints that could not be deleted
  };

  CheckpointWriter(SaverOptions options, std::shared_ptr<FileSystem> files);
  ~CheckpointWriter();  // waits; an error becomes a warning

  // Writes state["model"] to a file of its own, and copies tensors if it writes in the background. Call wait() for the
  // previous write first.
  void write(Manifest manifest, SavedList::Sent sent, const StateDict& state);
  bool has_ended() const;  // a write was started, and has ended
  Result wait();           // returns when everything is on disk
  void rethrow();          // rethrows, once, the error of the write for which wait() has waited
  // After wait(): why the last write failed, under OnFailure::CONTINUE; empty if it succeeded.
  const std::string& failure() const { return failure_; }
  // Becomes true once the newest checkpoint is on disk, and false if its write fails. From any thread.
  const std::shared_future<bool>& written() const { return written_; }
  // Duration of the last write; 0 before the first. From any thread.
  std::chrono::duration<double> last_write_time() const { return std::chrono::duration<double>(write_seconds_); }

  // Makes the folder of a checkpoint of which ranks 1 to ranks - 1 write parts, and returns what these ranks need to
  // know (PartTicket). write() then waits in the background for the parts. If the folder cannot be made under
  // OnFailure::CONTINUE, warns and returns an empty string.
  std::string open_parts(int ranks);
  void drop_parts() { parts_.reset(); }
  std::string next_id() const { return parts_ ? parts_->id() : new_id(); }
  // A rank is lost: waits for missing parts only this long.
  void abandon(std::chrono::milliseconds patience = std::chrono::seconds(5)) { patience_ = patience.count(); }

  // Call the following functions after wait().
  void note(const std::vector<Note>& notes);
  void link_best(const std::string& name);  // empty: does nothing
  // Makes `latest` lead to the checkpoint of that name; an empty name removes the link. A failure is a warning.
  void link_latest(const std::string& name, const std::string& run_name);
  void free_links();
  // Deletes unfinished checkpoints that a killed process left, and the `retired` ones. Returns those that could not be
  // deleted.
  std::vector<std::string> clean_up(const std::vector<std::string>& retired, const std::string& best);
  // Throws ConfigError for a name, run or state that a checkpoint cannot hold. Writes nothing.
  void check_writable(Manifest manifest, const StateDict& state) const;
  CheckpointFolder& folder() { return folder_; }
  void take_run_id(const std::string& run_id);  // call before anything is written
  const SaverOptions& options() const { return options_; }
  FileSystem& files() const { return *files_; }

 private:
  struct Job;
  std::string best_link() const { return options_.best && !options_.latest.empty() ? Best::kLink : ""; }
  void unlink_others(const std::string& run_name);
  void remove_leftovers();
  void write_files(const Job& job);
  void try_write(const Job& job);
  void write_and_tell(Job& job);
  void delete_retired(const Job& job);
  bool pause(std::chrono::steady_clock::duration pause) const;

  SaverOptions options_;
  std::shared_ptr<FileSystem> files_;
  CheckpointFolder folder_;
  std::unique_ptr<StateDict> copy_;                 // its memory is reused
  std::unique_ptr<CheckpointFolder::Parts> parts_;  // of the next checkpoint; null: it has no parts
  std::atomic<std::int64_t> patience_ = -1;         // milliseconds; -1: no rank is lost
  std::atomic<double> write_seconds_ = 0;
  // Written by the background thread until wait() has returned.
  Result result_;
  std::string failure_;
  bool cleaned_ = false;
  std::string linked_;  // the checkpoint to which the link of `best` leads; empty: unknown
  // One thread for each write. A BackgroundQueue would end with the first error, and in a forked process.
  std::future<void> writing_;
  std::shared_future<bool> written_;
};

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kStateFile = "state.safetensors";

}  // namespace composer::saving

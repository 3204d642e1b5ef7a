#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "composer/checkpoint/checkpoint_writer.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/saved_list.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

COMPOSER_EXPORT void check(const SaverOptions& options, OptionNames names = {});  // throws ConfigError

// Writes the checkpoints of a run, one at a time, on a background thread, and has the list of them: save() returns when
// the tensors are copied. Use from one thread.
class COMPOSER_EXPORT Saver {
 public:
  explicit Saver(SaverOptions options, std::shared_ptr<FileSystem> files = std::make_shared<FileSystem>());

  // Call plan(), then save(). After plan(), list() and visit_state() include the new checkpoint. save() writes
  // state["model"] to a file of its own, copies tensors if it writes in the background, and fills in the manifest's id,
  // run_id, parent and number. Both wait for the previous write and rethrow its error, so when save() returns, every
  // earlier checkpoint is on disk.
  void plan(const Manifest& manifest, const Planned& planned = {});
  void save(Manifest manifest, const StateDict& state);
  // Call before plan(): gives the manifest a name, like SavedList::choose_name(). Waits like plan().
  void choose_name(Manifest& manifest, const Planned& planned);
  std::string open_parts(int ranks);  // call before plan(); see CheckpointWriter. Waits like save()
  void rethrow_error();               // rethrows if the background write has ended; does not wait
  void wait();                        // returns when everything is on disk; throws the error of the write

  void write_notes();  // calls wait(), then writes notes of the list into manifests
  void link_best();
  void clean_up();  // deletes unfinished and outdated checkpoints that a killed process left
  // Throws ConfigError for a name, run or state that a checkpoint cannot hold. Writes nothing.
  void check_writable(Manifest manifest, const StateDict& state) const;
  // `weights`: version of the weights that are saved or were loaded with the list, at this batch.
  void visit_state(StateVisitor& visit, std::uint64_t weights = 0, std::int64_t batch = -1);
  // Adds checkpoints that an earlier process of this run has written after the one from which this process was resumed,
  // at this batch. Throws FileError.
  std::vector<Manifest> adopt_unlisted(std::int64_t batch);

  SavedList& list() { return list_; }
  const SavedList& list() const { return list_; }
  CheckpointWriter& writer() { return writer_; }
  const CheckpointWriter& writer() const { return writer_; }
  const SaverOptions& options() const { return writer_.options(); }

 private:
  bool is_gone(const std::string& name) const;
  SavedList list_;
  CheckpointWriter writer_;
};

// Reads a checkpoint written by Saver. "model" always exists. Parts of several ranks are merged: "optimizer" has the
// state of all parameters. If `ranks` is the number of ranks that wrote the checkpoint, algorithms and callbacks have
// the state of this rank.
COMPOSER_EXPORT StateDict load(const Found& checkpoint, int rank = 0, int ranks = 1);

// Reads every byte of the checkpoint; throws CheckpointError for damage.
COMPOSER_EXPORT void verify(const Found& checkpoint);

}  // namespace composer::saving

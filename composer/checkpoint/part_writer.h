#pragma once
#include <future>
#include <memory>
#include <string>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/parts.h"
#include "composer/checkpoint/save_options.h"
#include "composer/core/export.h"
#include "composer/core/state_dict.h"

namespace composer::saving {

// Writes the parts of a rank other than 0, one at a time, like Saver does for rank 0: write() returns when the tensors
// are copied. Use from one thread.
class COMPOSER_EXPORT PartWriter {
 public:
  PartWriter(int rank, int ranks, OnFailure on_failure, bool asynchronous,
             std::shared_ptr<FileSystem> files = std::make_shared<FileSystem>());
  ~PartWriter();  // waits; an error becomes a warning
  PartWriter(const PartWriter&) = delete;
  PartWriter& operator=(const PartWriter&) = delete;

  // Waits for the previous write and rethrows its error, like all functions here. If a part cannot be written, that is
  // a CheckpointError or a warning, depending on on_failure; rank 0 is informed in any case, and then has no
  // checkpoint.
  void write(const PartTicket& ticket, const StateDict& state);
  void rethrow_error();  // rethrows if the write has ended; does not wait
  void wait();

 private:
  void try_write(const PartTicket& ticket, const StateDict& state) const;
  void write_once(const PartTicket& ticket, const StateDict& state) const;
  void report_failure(const PartTicket& ticket, const std::string& why) const;

  std::string name_;
  int rank_;
  OnFailure on_failure_;
  bool asynchronous_;
  std::shared_ptr<FileSystem> files_;
  std::unique_ptr<StateDict> copy_;  // its memory is reused
  std::future<void> writing_;
};

}  // namespace composer::saving

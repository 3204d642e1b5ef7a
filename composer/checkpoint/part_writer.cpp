#include "composer/checkpoint/part_writer.h"

#include <array>
#include <chrono>
#include <exception>
#include <filesystem>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <c10/util/ScopeExit.h>

#include "composer/checkpoint/host_copy.h"
#include "composer/checkpoint/retry_pauses.h"
#include "composer/checkpoint/state_file.h"
#include "composer/core/error.h"

namespace composer::saving {
namespace {

constexpr const char* kUnfinished = ".unfinished";

}  // namespace

PartWriter::PartWriter(int rank, int ranks, OnFailure on_failure, bool asynchronous, std::shared_ptr<FileSystem> files)
    : name_(part_name(rank, ranks)),
      rank_(rank),
      on_failure_(on_failure),
      asynchronous_(asynchronous),
      files_(std::move(files)),
      copy_(std::make_unique<StateDict>()) {}

PartWriter::~PartWriter() {
  try {
    wait();
  } catch (...) {
    warn(join("checkpoint: ", describe(std::current_exception())));
  }
}

void PartWriter::rethrow_error() {
  if (writing_.valid() && writing_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
}

void PartWriter::wait() {
  if (writing_.valid()) writing_.get();
}

void PartWriter::write(const PartTicket& ticket, const StateDict& state) {
  wait();
  std::vector<c10::Event> events = copy_to_host(state, *copy_, asynchronous_);
  const auto write = [this, ticket, events = std::make_shared<std::vector<c10::Event>>(std::move(events))] {
    for (const c10::Event& event : *events) event.synchronize();
    try_write(ticket, *copy_);
  };
  if (asynchronous_)
    writing_ = std::async(std::launch::async, write);
  else
    write();
}

void PartWriter::try_write(const PartTicket& ticket, const StateDict& state) const {
  for (std::size_t attempt = 0;; ++attempt) try {
      return write_once(ticket, state);
    } catch (const std::filesystem::filesystem_error& error) {
      if (on_failure_ == OnFailure::RETRY && attempt < kRetryPauses.size()) {
        std::this_thread::sleep_for(kRetryPauses[attempt]);
        continue;
      }
      report_failure(ticket, error.what());
      const std::string what = join("checkpoint: the part of rank ", rank_, " was not written");
      if (on_failure_ == OnFailure::CONTINUE) return warn(join(what, ": ", error.what()));
      std::throw_with_nested(CheckpointError(what));
    } catch (const std::exception& error) {
      report_failure(ticket, error.what());
      throw;
    }
}

void PartWriter::write_once(const PartTicket& ticket, const StateDict& state) const {
  const std::filesystem::path path = ticket.folder / name_, unfinished = ticket.folder / (name_ + kUnfinished);
  files_->remove(unfinished);
  int file = files_->create(unfinished);
  const auto close = c10::make_scope_exit([&] {
    if (file < 0) return;
    ::close(file);
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);  // frees space for the report of the failure
  });
  write_state(state, ticket.id, [&](std::uint64_t offset, const void* data, std::size_t size) {
    files_->write(file, unfinished, offset, data, size);
  });
  files_->sync(file, unfinished);
  files_->close(std::exchange(file, -1), unfinished);
  files_->rename(unfinished, path);  // from here on the folder belongs to rank 0, which syncs and renames it
}

// The file's name is the message, because a text may not fit onto a full disk. If creating the file fails, too, rank 0
// waits until it receives the error from this rank, or for ten minutes.
void PartWriter::report_failure(const PartTicket& ticket, const std::string& why) const {
  try {
    const std::string text = join("rank ", rank_, ": ", why);
    const std::filesystem::path path = ticket.folder / failure_name(name_), unfinished = path.string() + kUnfinished;
    const int file = files_->create(unfinished);
    try {
      files_->write(file, unfinished, 0, text.data(), text.size());
    } catch (const std::filesystem::filesystem_error&) {  // NOLINT(bugprone-empty-catch)
    }
    files_->close(file, unfinished);
    files_->rename(unfinished, path);
  } catch (const std::filesystem::filesystem_error& error) {
    warn(join("checkpoint: rank 0 could not be told that the part of rank ", rank_, " is missing: ", error.what()));
  }
}

}  // namespace composer::saving

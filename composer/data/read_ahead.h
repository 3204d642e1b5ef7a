#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "composer/core/tensors.h"

namespace composer::data::detail {

// Whether the batch being made is still needed. If not, the result is discarded.
class StillWanted {
 public:
  StillWanted() = default;  // the batch is always needed
  StillWanted(const std::atomic<std::uint64_t>& seeks, std::uint64_t mine) : seeks_(&seeks), mine_(mine) {}
  bool operator()() const { return !seeks_ || seeks_->load(std::memory_order_relaxed) == mine_; }

 private:
  const std::atomic<std::uint64_t>* seeks_ = nullptr;
  std::uint64_t mine_ = 0;
};

// Makes the next batches on background threads and returns them in order. libtorch's operators use one processor there
// (see one_thread.h). Call seek() and next() from one thread.
class ReadAhead {
 public:
  // Called from several threads at once, with positions that depend only on seek() and next().
  using Make = std::function<Batch(std::int64_t epoch, std::int64_t batch, StillWanted wanted)>;

  struct Position {
    std::int64_t epoch, batch;
    bool operator==(const Position&) const = default;
  };

  // Starts at `from`. At most `depth` batches are ready or being made. `batches` is the number per epoch.
  ReadAhead(std::int64_t threads, std::int64_t depth, std::int64_t batches, Position from, Make make);
  ~ReadAhead();  // waits for the batches being made, and discards them
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Sets the position of the next batch. After an epoch's last batch, batches are prepared for the following epoch, or
  // for the same epoch again if the last change of epochs was such a repetition. If another position is requested,
  // these are dropped.
  void seek(Position to);
  // Returns the next batch; after an epoch's last batch, the first one of the following epoch. If making a batch threw,
  // throws that error once; the next call returns the following batch.
  Batch next();

 private:
  struct Slot {
    bool done = false;
    Batch batch;
    std::exception_ptr error;
  };

  void run();
  void stop();
  Position position(std::int64_t number) const;
  void note_epoch_order(Position to);
  Slot make(std::int64_t epoch, std::int64_t batch, StillWanted wanted) const;
  Slot& slot(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }
  bool has_work() const {  // makes nothing past the last batch, where a reader may stay
    return from_.batch < batches_ && to_make_ < to_give_ + static_cast<std::int64_t>(slots_.size());
  }

  const std::int64_t batches_;
  const Make make_;

  std::mutex mutex_;  // guards everything below except threads_
  std::condition_variable work_, ready_;
  std::vector<Slot> slots_;
  Position from_;                           // position of the last seek()
  std::int64_t epochs_on_ = 1;              // difference between consecutive epochs: 1, or 0
  std::int64_t to_make_ = 0, to_give_ = 0;  // numbers of the next batch to make and to return, counted from from_
  // Number of calls of seek(); batches begun before the last call are discarded; read without the lock.
  std::atomic<std::uint64_t> seeks_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace composer::data::detail

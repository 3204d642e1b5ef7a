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

// Whether anybody still waits for the batch being made. If not, what is returned for it is nobody's.
class StillWanted {
 public:
  StillWanted() = default;  // always
  StillWanted(const std::atomic<std::uint64_t>& seeks, std::uint64_t mine) : seeks_(&seeks), mine_(mine) {}
  bool operator()() const { return !seeks_ || seeks_->load(std::memory_order_relaxed) == mine_; }

 private:
  const std::atomic<std::uint64_t>* seeks_ = nullptr;
  std::uint64_t mine_ = 0;
};

// Makes the next batches on threads of its own, and gives them in their order. Libtorch's operators run on one
// processor there (see one_thread.h). One thread calls seek() and next().
class ReadAhead {
 public:
  // Called from several threads at once, with places that depend on seek() and next() alone.
  using Make = std::function<Batch(std::int64_t epoch, std::int64_t batch, StillWanted wanted)>;

  // At most `depth` batches wait or are being made.
  ReadAhead(std::int64_t threads, std::int64_t depth, Make make);
  ~ReadAhead();  // waits for the batches being made; nobody gets them
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // From here to the end of the epoch, which has `end` batches. What was made before is dropped.
  void seek(std::int64_t epoch, std::int64_t batch, std::int64_t end);
  // The batch at this place, which must be before the end; the next call gives the next one, also after an error.
  // Throws what making it threw.
  Batch next();

 private:
  struct Slot {
    bool done = false;
    Batch batch;
    std::exception_ptr error;
  };

  void run();
  void stop();
  Slot make(std::int64_t epoch, std::int64_t batch, StillWanted wanted) const;
  Slot& slot(std::int64_t batch) { return slots_[static_cast<std::size_t>(batch) % slots_.size()]; }
  bool has_work() const { return to_make_ < end_ && to_make_ < to_give_ + static_cast<std::int64_t>(slots_.size()); }

  const Make make_;

  std::mutex mutex_;  // of everything below but threads_
  std::condition_variable work_, ready_;
  std::vector<Slot> slots_;
  std::int64_t epoch_ = 0, to_make_ = 0, to_give_ = 0, end_ = 0;
  std::atomic<std::uint64_t> seeks_ = 0;  // a batch begun before the last seek is nobody's; read without the lock too
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace composer::data::detail

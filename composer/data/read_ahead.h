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

// Makes the next batches on background threads, and gives them in their order. Libtorch's operators run on one
// processor there (see one_thread.h). One thread calls seek() and next().
class ReadAhead {
 public:
  // Called from several threads at once, with places that depend on seek() and next() alone.
  using Make = std::function<Batch(std::int64_t epoch, std::int64_t batch, StillWanted wanted)>;

  struct Place {
    std::int64_t epoch, batch;
    bool operator==(const Place&) const = default;
  };

  // Begins at `from`. At most `depth` batches wait or are being made. An epoch has `batches`.
  ReadAhead(std::int64_t threads, std::int64_t depth, std::int64_t batches, Place from, Make make);
  ~ReadAhead();  // waits for the batches being made; nobody gets them
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The next batch is this one. Batches of the epoch after the one that ends are begun before anybody asks for them: it
  // is taken to be the next one, or the same one again if that was so before. What is not asked for is dropped.
  void seek(Place to);
  // The next call gives the next batch, of the epoch after this one behind the last, also after an error. Throws what
  // making it threw.
  Batch next();

 private:
  struct Slot {
    bool done = false;
    Batch batch;
    std::exception_ptr error;
  };

  void run();
  void stop();
  Place place(std::int64_t number) const;
  void learn(Place to);
  Slot make(std::int64_t epoch, std::int64_t batch, StillWanted wanted) const;
  Slot& slot(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }
  bool has_work() const {  // not behind the last batch, where a loader may be left
    return from_.batch < batches_ && to_make_ < to_give_ + static_cast<std::int64_t>(slots_.size());
  }

  const std::int64_t batches_;
  const Make make_;

  std::mutex mutex_;  // of everything below but threads_
  std::condition_variable work_, ready_;
  std::vector<Slot> slots_;
  Place from_;                              // of the last seek()
  std::int64_t epochs_on_ = 1;              // from the epoch that ends to the one that begins: 1, or 0
  std::int64_t to_make_ = 0, to_give_ = 0;  // numbers of batches, counted from from_
  std::atomic<std::uint64_t> seeks_ = 0;    // a batch begun before the last seek is nobody's; read without the lock too
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace composer::data::detail

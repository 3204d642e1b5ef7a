#pragma once
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include "composer/core/tensors.h"

namespace composer {

// The copy of a batch that is being made on a device.
class CopyInFlight {
 public:
  virtual ~CopyInFlight() = default;
  // The tensors on the device, for work that is queued after this call on the current stream.
  virtual Batch receive() = 0;
  virtual bool arrived() const = 0;  // whether the source memory is no longer read
  virtual void wait() const = 0;     // until it has arrived
};

// Begins the copy of a batch. Returns nullptr if the batch is to be copied when it is used.
using StartCopy = std::function<std::unique_ptr<CopyInFlight>(const Batch& batch)>;

// Copies on a stream of their own. Without such streams, makes no copies. The device must not be the CPU.
StartCopy copies_on_side_stream(at::Device device);

// Reads one batch ahead, and keeps copies of it and of the current batch. Batches stay where they came from; copy_of()
// returns the copy of a tensor when it is needed on the device. The memory of a batch is held until its copy has
// arrived.
class CopyAhead {
 public:
  using Next = std::function<std::optional<Batch>()>;

  explicit CopyAhead(StartCopy start) : start_(std::move(start)) {}
  ~CopyAhead();
  CopyAhead(const CopyAhead&) = delete;
  CopyAhead& operator=(const CopyAhead&) = delete;

  void put(const Next& next);  // takes a batch and begins its copy; an exception of `next` is kept for take()
  bool full() const { return staged_.has_value(); }
  std::optional<Batch> take();  // makes the staged batch the current one and returns it; throws what put() has kept
  void forget_current();        // the copies of the current batch are no longer needed
  void drop();                  // nor is the staged batch

  // The copy of a tensor of the current batch, or of consecutive rows of one. Undefined if there is none: the tensor
  // was changed since, it is not of the current batch, or its copy was returned before, so that it may have been
  // changed.
  at::Tensor copy_of(const at::Tensor& tensor);

 private:
  struct Copied {
    at::Tensor source, copy;
    std::int64_t version;
    std::int64_t rows_given = 0;
  };
  struct Staged {
    std::optional<Batch> batch;  // nullopt: the epoch is over
    std::vector<Copied> copied;  // one for each tensor; the copies are not there yet
    std::unique_ptr<CopyInFlight> copy;
    std::exception_ptr error;
  };

  void release_arrived(std::size_t most);

  StartCopy start_;
  std::optional<Staged> staged_;
  std::vector<Copied> current_;
  std::deque<std::pair<Batch, std::unique_ptr<CopyInFlight>>> in_flight_;  // the sources of copies, oldest first
};

}  // namespace composer

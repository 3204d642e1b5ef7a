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

// The copy of a batch, on its way to a device.
class CopyInFlight {
 public:
  virtual ~CopyInFlight() = default;
  // The tensors on the device, for work that is queued after this call on the stream that is current now.
  virtual Batch receive() = 0;
  virtual bool arrived() const = 0;  // the memory that is copied from is not read any more
  virtual void wait() const = 0;     // until it has arrived
};

// Begins the copy of a batch. nullptr: the batch is copied when it is wanted.
using StartCopy = std::function<std::unique_ptr<CopyInFlight>(const Batch& batch)>;

// Copies on a stream of their own, or none if the device has no streams to choose from. It is not the CPU.
StartCopy copies_on_side_stream(at::Device device);

// The batch after the current one, and copies of both. Batches stay where they came from: a copy is what its tensors
// become when they are asked for on the device. The memory of a batch is held until its copy has arrived.
class Stage {
 public:
  using Next = std::function<std::optional<Batch>()>;

  explicit Stage(StartCopy start) : start_(std::move(start)) {}
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  void put(const Next& next);  // takes a batch and begins its copy; what `next` throws is kept for take()
  bool full() const { return staged_.has_value(); }
  std::optional<Batch> take();  // the staged batch, now the current one; throws what put() has kept
  void forget_current();        // its copies are not wanted any more
  void drop();                  // nor what is staged

  // The copy of a tensor of the current batch, or of consecutive rows of one. Undefined if there is none: it has been
  // changed since, is of another batch, or was given away before, because whoever got it may have changed it.
  at::Tensor copy_of(const at::Tensor& tensor);

 private:
  struct Copied {
    at::Tensor source, copy;
    std::int64_t version;
    std::int64_t rows_given = 0;
  };
  struct Staged {
    std::optional<Batch> batch;  // nullopt: the epoch is over
    std::vector<Copied> copied;  // of each tensor, the copies still on their way
    std::unique_ptr<CopyInFlight> copy;
    std::exception_ptr error;
  };

  void release_arrived(std::size_t most);

  StartCopy start_;
  std::optional<Staged> staged_;
  std::vector<Copied> current_;
  std::deque<std::pair<Batch, std::unique_ptr<CopyInFlight>>> in_flight_;  // what is copied from, oldest first
};

}  // namespace composer

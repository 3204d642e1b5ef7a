#pragma once
// The compact storage of InMemoryLogger: about 30 bytes per training step instead of a kilobyte. It uses deques,
// because a vector that grows copies everything and frees the block that it had.
#include <cstdint>
#include <deque>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/scalar.h"
#include "composer/core/time.h"

namespace composer::loggers {

// Timestamps in the order in which they were added. A timestamp one batch after the last one takes 16 bytes.
class Timeline {
 public:
  // Adds a timestamp and returns its index. If time has not advanced, returns the last index.
  std::int64_t add(const Timestamp& now);
  Timestamp at(std::int64_t index) const;
  std::vector<Timestamp> all() const;

 private:
  struct Step {
    std::uint32_t samples, tokens;
    Seconds duration;
  };
  std::deque<Step> steps_;
  std::vector<std::pair<std::size_t, Timestamp>> jumps_;  // replace the step of that index
  Timestamp last_;
};

// Integers. Each evenly spaced run takes 24 bytes in total, so counters take no memory per value.
class Runs {
 public:
  void add(std::int64_t value);
  std::int64_t size() const { return size_; }
  std::int64_t last() const;  // requires at least one value
  std::vector<std::int64_t> all() const;

 private:
  struct Run {
    std::int64_t first, stride, count;
  };
  std::vector<Run> runs_;
  std::int64_t size_ = 0;
};

// The values of one metric, in the smallest representation that is exact.
class Values {
 public:
  void add(const Scalar& value);
  void add(double value);
  void add(std::int64_t value);
  // Keeps a one-element tensor that is not on the host; read_pending() reads all of them together.
  void add_pending(const at::Tensor& tensor);
  void read_pending();
  // All values except pending ones.
  std::vector<Scalar> all() const;
  Scalar last() const;  // the last value except pending ones; requires at least one

 private:
  void widen(const Scalar& value);  // switches to a representation that can hold it
  std::variant<Runs, std::deque<float>, std::deque<double>, std::deque<Scalar>> values_;
  std::vector<at::Tensor> pending_;  // 0-d tensors, or 1-d stacks of them
  std::size_t pending_scalars_ = 0;  // number of 0-d tensors at the end of pending_
};

}  // namespace composer::loggers

#pragma once
// How InMemoryLogger keeps a run small: a step of training costs some 30 bytes, not a kilobyte.
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/time.h"
#include "composer/loggers/scalar.h"

namespace composer::loggers {

// Points in training in the order in which they came. One that is the batch after the last takes 16 bytes.
class Timeline {
 public:
  // Its index: the last one's if time has not moved.
  std::int64_t add(const Timestamp& now);
  Timestamp at(std::int64_t index) const;
  std::vector<Timestamp> all() const;

 private:
  struct Step {
    std::uint32_t samples, tokens;
    Seconds duration;
  };
  std::vector<Step> steps_;
  std::vector<std::pair<std::size_t, Timestamp>> jumps_;  // in the place of the step of that index
  Timestamp last_;
};

// Whole numbers, of which each evenly spaced run takes 24 bytes: counters are free.
class Runs {
 public:
  void add(std::int64_t value);
  std::int64_t size() const { return size_; }
  std::int64_t last() const;  // of at least one
  std::vector<std::int64_t> all() const;

 private:
  struct Run {
    std::int64_t first, stride, count;
  };
  std::vector<Run> runs_;
  std::int64_t size_ = 0;
};

// The values of one metric, in the narrowest form that holds them exactly.
class Values {
 public:
  void add(const Scalar& value);
  void add(double value);
  // Keeps a tensor of one element that is not on the host; read_pending() reads all of them at once.
  void add_pending(const at::Tensor& tensor);
  void read_pending();
  // Without those that are pending.
  std::vector<Scalar> all() const;
  Scalar last() const;  // likewise; of at least one

 private:
  void widen(const Scalar& value);  // so that it fits better
  std::variant<Runs, std::vector<float>, std::vector<double>, std::vector<Scalar>> values_;
  std::vector<at::Tensor> pending_;  // 0-d, or 1-d: many of them stacked
  std::size_t pending_scalars_ = 0;  // at the end of pending_
};

}  // namespace composer::loggers

#pragma once
#include <cstdint>
#include <utility>

#include "composer/trainer/aside_forward.h"
#include "composer/trainer/fit.h"

namespace composer {

// What the evaluations and predictions of a trainer have in common.
class Asides {
 public:
  explicit Asides(AsidePlan given) : plan(std::move(given)) {}

  // Several calls of eval() and predict() at one batch draw different numbers: which of them comes next. Evaluations
  // that are due have number 0.
  std::int64_t next_call(std::int64_t batch) {
    if (std::exchange(batch_, batch) != batch) calls_ = 0;
    return ++calls_;
  }

  AsidePlan plan;
  Stopwatch stopwatch;
  bool evaluating = false, predicting = false;

 private:
  std::int64_t batch_ = -1, calls_ = 0;  // of the last call, and how many there were at that batch
};

}  // namespace composer

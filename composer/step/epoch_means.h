#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/logger.h"
#include "composer/core/state.h"

namespace composer {

class StateVisitor;

// The means of the training losses and metrics over an epoch, weighted by the samples of its batches. Each is logged
// when the epoch ends, under the key of its batches and "_epoch": loss/train/total_epoch. A value costs one addition a
// batch, and nothing waits for a device.
class EpochMeans {
 public:
  // Begins a batch of `samples` samples, over all ranks; 0: they are not counted, so batches have equal weight. To be
  // called before the batch is counted in `now`.
  void begin_batch(const Timestamp& now, std::int64_t samples);
  // Adds numbers that were logged for the batch. Those that are texts, or tensors of several numbers, have no mean.
  void add(std::span<const LogEntry> values);
  // To be called at the end of an epoch, before it is counted. Logs nothing if not all its batches were added.
  void log(const Timestamp& now, Logger& logger);

  // For a run that is saved within an epoch.
  bool is_empty() const { return batches_ == 0; }
  void visit_state(StateVisitor& visit);
  void clear() { sums_.clear(), batches_ = 0, weight_ = 0; }

 private:
  struct Sum {
    std::string key;
    at::Tensor sum;  // a double, on the device of the values
  };
  at::Tensor& sum_of(std::string_view key, std::size_t likely_place, const at::Tensor& value);

  std::vector<Sum> sums_;
  std::size_t added_ = 0;       // values of this batch: a batch usually has those of the one before, in the same order
  std::int64_t batches_ = 0;    // of this epoch
  double weight_ = 0;           // of all of them
  double weight_of_batch_ = 0;  // 0: the batches before were not added, so this one is not, either
};

}  // namespace composer

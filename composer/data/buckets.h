#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer::data::detail {

struct BucketRule {
  const char* who = "";                      // for errors
  at::Tensor lengths = {};                   // [samples]
  std::int64_t samples = 0;                  // expected
  std::int64_t batch_size = 1, batches = 1;  // batches: as many are sorted together
  bool shuffle = true;
};

// Returns a function that arranges the order of an epoch so that samples of like length are in the same batch.
// Shuffled: each `batches` batches of the order are sorted, and then all batches are shuffled, but for a smaller last
// one. Otherwise all samples are sorted. Throws DataError unless there is a length for each sample.
std::function<void(std::vector<std::int64_t>& order, std::uint64_t seed, std::int64_t epoch)> buckets(BucketRule rule);

}  // namespace composer::data::detail

#include "composer/data/buckets.h"

#include <algorithm>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/random.h"

namespace composer::data::detail {
namespace {

constexpr std::uint64_t kBatchOrder = 8;

}  // namespace

std::function<void(std::vector<std::int64_t>& order, std::uint64_t seed, std::int64_t epoch)> buckets(BucketRule rule) {
  if (rule.lengths.dim() != 1 || rule.lengths.size(0) != rule.samples)
    throw DataError(rule.who, ": lengths must have one number for each of ", rule.samples, " samples, got the shape ",
                    rule.lengths.sizes());
  rule.lengths = rule.lengths.detach().to(at::kCPU, at::kLong).contiguous();
  return [rule](std::vector<std::int64_t>& order, std::uint64_t seed, std::int64_t epoch) {
    const auto* const lengths = rule.lengths.const_data_ptr<std::int64_t>();
    const auto shorter = [lengths](std::int64_t a, std::int64_t b) { return lengths[a] < lengths[b]; };
    if (!rule.shuffle) return std::stable_sort(order.begin(), order.end(), shorter);
    const auto size = static_cast<std::ptrdiff_t>(rule.batch_size);
    const std::ptrdiff_t whole = std::ssize(order) / size * size, pool = size * rule.batches;
    for (std::ptrdiff_t from = 0; from < whole; from += pool)
      std::stable_sort(order.begin() + from, order.begin() + std::min(from + pool, whole), shorter);
    RandomStream random(hash64(seed, kBatchOrder, epoch));
    for (std::ptrdiff_t i = 1; i < whole / size; ++i) {
      const auto other = static_cast<std::ptrdiff_t>(random.below(static_cast<std::uint64_t>(i + 1)));
      if (other != i)
        std::swap_ranges(order.begin() + i * size, order.begin() + (i + 1) * size, order.begin() + other * size);
    }
  };
}

}  // namespace composer::data::detail

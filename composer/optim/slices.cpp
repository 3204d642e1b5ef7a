#include "composer/optim/slices.h"

#include <algorithm>

#include <ATen/Parallel.h>

namespace composer::optim::detail {

void run(std::span<const Slice> slices) {
  constexpr std::int64_t kWorthAThread = 32768;
  std::int64_t total = 0;
  for (const Slice& slice : slices) total += slice.n;
  at::parallel_for(0, total, kWorthAThread, [slices](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;  // element of the slice
    for (const Slice& slice : slices) {
      if (first >= end) break;
      const std::int64_t from = std::max(begin, first), to = std::min(end, first + slice.n);
      if (from < to) run(slice, from - first, to - first);
      first += slice.n;
    }
  });
}

}  // namespace composer::optim::detail

#pragma once
#include <cstdint>
#include <functional>
#include <map>

#include "composer/kernels/products.h"

namespace composer {

// The shape that is raced in place of `shape`. It has fewer matrices, steps or heads if there are more than time and
// memory allow. Threads divide the heads of attention among each other, so it keeps at least as many heads as threads,
// if the layer has them, and a multiple of that number if it has fewer heads than the layer.
kernels::ProductShape raced_shape(kernels::ProductShape shape, std::int64_t threads);

struct ProductRace {
  kernels::ProductTable table;
  bool disturbed = false;  // some shapes were only timed while other programs disturbed the race
};

// Times each product with libtorch's library and with our kernels, one right after the other, with the current number
// of threads. A product takes some 50 ms, or six runs if these take longer. The largest products come first, until
// `seconds` or 10 seconds have passed, whichever is longer. A product whose kernel takes at least 3 % less time than
// the library is marked in the table as ours. Products that were not timed are not in the table. Trials disturbed by
// other programs are repeated; their time is taken from `patience`, in seconds. `before_each` is called before each
// trial, and may throw.
ProductRace race_products(const std::map<kernels::ProductShape, std::int64_t>& shapes, double seconds,
                          const std::function<void()>& before_each, double& patience);

}  // namespace composer

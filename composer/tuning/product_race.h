#pragma once
#include <cstdint>
#include <functional>
#include <map>

#include "composer/kernels/products.h"

namespace composer {

// The shape that stands for another in the race: with fewer matrices, steps or heads, where there are more than its
// time and memory allow. Threads divide heads of attention among each other, so there are at least as many as threads,
// where the layer has them, and a multiple of that if there are fewer than in the layer.
kernels::ProductShape raced_shape(kernels::ProductShape shape, std::int64_t threads);

struct ProductRace {
  kernels::ProductTable table;
  bool disturbed = false;  // some shapes were only timed while other programs disturbed it
};

// Times each product with libtorch's library and with our kernels, one right after the other, with as many threads as
// are in use: some 50 ms each, or six products that take longer, the largest first, until `seconds` have passed, or 10.
// Those for which ours takes at least 3 % less time are for ours in the table. Those that nobody timed are not in it.
// What other programs have disturbed is timed again, for as long as there is `patience`, from which that time is taken.
// `before_each` is called before each trial, and may throw.
ProductRace race_products(const std::map<kernels::ProductShape, std::int64_t>& shapes, double seconds,
                          const std::function<void()>& before_each, double& patience);

}  // namespace composer

#pragma once
#include <functional>
#include <map>

#include "composer/kernels/products.h"

namespace composer {

// Times each product with libtorch's library and with our kernels, one right after the other, with as many threads as
// are in use: some 50 ms each, or six products that take longer, the largest first, until 10 s have passed. Those for
// which ours takes at least 3 % less time are for ours in the table; other shapes, too, if every product took at most
// 4/5 of the library's time. `before_each` is called before each trial, and may throw.
kernels::ProductTable race_products(const std::map<kernels::ProductShape, std::int64_t>& shapes,
                                    const std::function<void()>& before_each);

}  // namespace composer

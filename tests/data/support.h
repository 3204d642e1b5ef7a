#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/data/loader.h"

namespace composer::test {

struct LoaderCase {
  const char* name;
  std::function<std::shared_ptr<Loader>()> make;
};

inline std::vector<std::int64_t> numbers_of(const at::Tensor& tensor) {
  const at::Tensor c = tensor.contiguous();
  return {c.const_data_ptr<std::int64_t>(), c.const_data_ptr<std::int64_t>() + c.numel()};
}

}  // namespace composer::test

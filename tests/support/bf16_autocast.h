#pragma once
#include <ATen/autocast_mode.h>

namespace composer::test {

// While it lives, the CPU's autocast is on, to bfloat16.
struct Bf16Autocast {
  Bf16Autocast() {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Bf16Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
  }
  Bf16Autocast(const Bf16Autocast&) = delete;
  Bf16Autocast& operator=(const Bf16Autocast&) = delete;
};

}  // namespace composer::test

#pragma once
#include <cstdlib>

#include <c10/core/Device.h>

namespace composer::test {

// Where tests train that do not say it: on the CPU, unless the environment variable COMPOSER_TEST_DEVICE names another
// device, such as "cuda". Tests that compare with numbers of the CPU fail there.
inline at::Device device_of_tests() {
  const char* name = std::getenv("COMPOSER_TEST_DEVICE");
  return at::Device(name && *name ? name : "cpu");
}

}  // namespace composer::test

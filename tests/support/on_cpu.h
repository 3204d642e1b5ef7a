#pragma once
#include "tests/support/device.h"
#include "tests/support/doctest.h"

namespace composer::test {

// For tests that train on the CPU alone, such as ranks that are threads of one process.
inline doctest::skip on_cpu() { return doctest::skip(!device_of_tests().is_cpu()); }

}  // namespace composer::test

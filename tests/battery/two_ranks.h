#pragma once
#include <chrono>

#include "tests/dist/results_in_ranks.h"

namespace composer::test {

// Ranks that wait for each other forever are an error.
template <class Body>
auto in_two_ranks(const Body& body) {
  return dist::test::results_in_ranks(2, body, {.collective_timeout = std::chrono::seconds(60)});
}

}  // namespace composer::test

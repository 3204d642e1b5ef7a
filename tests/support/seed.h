#pragma once

namespace composer::test {

// Each test begins with it, so that its random numbers are the same whatever ran before it.
void seed_random_numbers();

}  // namespace composer::test

#include "composer/util/random.h"

#include <array>
#include <set>

#include "tests/support/doctest.h"

namespace composer::random_test {

static_assert(hash64(17, 0) == hash64(17, 0));

TEST_CASE("Each order of keys gives another number") {
  std::set<std::uint64_t> numbers;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (int a = 0; a < 20; ++a)
      for (int b = 0; b < 20; ++b) numbers.insert(hash64(seed, a, b));
  CHECK(numbers.size() == 8000);
}

TEST_CASE("A stream repeats from the same start, and stays in its bounds") {
  RandomStream one(5), two(5);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    CHECK(one.below(7) == two.below(7));
    const double x = one.uniform();
    CHECK(x == two.uniform());
    CHECK((x >= 0 && x < 1));
    sum += x;
  }
  CHECK(sum == doctest::Approx(5000).epsilon(0.02));
  std::array<int, 7> count{};
  for (int i = 0; i < 70000; ++i) ++count[one.below(7)];
  for (int n : count) CHECK(n == doctest::Approx(10000).epsilon(0.05));
  CHECK(one.below(1) == 0);
}

}  // namespace composer::random_test

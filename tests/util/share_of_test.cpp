// A share of a count is what arithmetic says: no product loses one because a processor rounds.
#include "composer/util/share_of.h"

#include "tests/support/doctest.h"

namespace composer::util::share_of_test {
namespace {

TEST_CASE("A share of a count in percent is what whole numbers give, also of the share that is left") {
  for (std::int64_t count = 0; count <= 2000; ++count)
    for (std::int64_t percent = 0; percent <= 100; ++percent) {
      const std::int64_t exact = count * percent / 100;
      const double share = static_cast<double>(percent) / 100, left = 1 - static_cast<double>(100 - percent) / 100;
      if (share_of(count, share) == exact && share_of(count, left) == exact) continue;
      CAPTURE(count);
      CAPTURE(percent);
      CHECK(share_of(count, share) == exact);
      CHECK(share_of(count, left) == exact);
    }
}

TEST_CASE("A share that is a part of the count gives that part back") {
  for (std::int64_t count = 1; count <= 2000; ++count)
    for (std::int64_t part = 0; part <= count; ++part) {
      const double share = static_cast<double>(part) / static_cast<double>(count);
      if (share_of(count, share) != part) FAIL_CHECK(part, " of ", count, " is ", share_of(count, share));
    }
}

TEST_CASE("What is clearly below a whole number is rounded down") {
  CHECK(share_of(10, 0.299) == 2);
  CHECK(share_of(1'000'000, 0.999999) == 999'999);
  CHECK(share_of(1'000'000, 0.9999989) == 999'998);
  CHECK(share_of(3, 1.5) == 4);
  CHECK(share_of(0, 1) == 0);
}

}  // namespace
}  // namespace composer::util::share_of_test

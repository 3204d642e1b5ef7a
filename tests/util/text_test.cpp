#include "composer/util/text.h"

#include <limits>
#include <sstream>
#include <string>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/locale.h"

namespace composer::text_test {
namespace {

TEST_CASE("Texts have the same numbers in every locale of the program") {
  const auto all = [] {
    util::OutText out;
    out << 1234567 << ' ' << 0.5 << ' ' << true;
    double read = 0;
    util::InText("0.25") >> read;
    return join(1234567, ' ', 1234.5, ' ', read, ' ') + out.str() + util::printed(" %d %.2f", 1234567, 1234.5);
  };
  const std::string before = all();
  CHECK(before == "1234567 1234.5 0.25 1234567 0.5 1 1234567 1234.50");
  const test::OtherLocale other;
  CHECK(std::to_string(1) + (std::ostringstream() << 1234567 << ' ' << 0.5).str() ==
        "11.234.567 0,5");  // it is another
  CHECK(all() == before);
}

TEST_CASE("printed() gives all that std::snprintf would, however long") {
  CHECK(util::printed("%s", "") == "");
  CHECK(util::printed("%.1f", std::numeric_limits<double>::max()).size() == 311);
  CHECK(util::printed("%*d|%-4s|%c", 3, 7, "ab", 'x') == "  7|ab  |x");
}

}  // namespace
}  // namespace composer::text_test

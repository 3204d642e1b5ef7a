#include "composer/util/text_table.h"

#include <cstdint>
#include <limits>

#include "tests/support/doctest.h"

namespace composer::util::text_table_test {
namespace {

TEST_CASE("A table of texts aligns its columns, leaves out those without texts, and ends lines without spaces") {
  TextTable table("lrlr");
  table.row({"name", "size", "", "x"});
  table.row({"a", "12", "", ""});
  table.row({"longer", "1,234", "", "10"});
  CHECK(table.text() == "name     size   x\na          12\nlonger  1,234  10\n");
  CHECK(table.text(2) == "  name     size   x\n  a          12\n  longer  1,234  10\n");
  CHECK(TextTable("l").text().empty());
}

TEST_CASE("Digits are grouped by three, also of negative numbers") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(-123456) == "-123,456");
  CHECK(grouped(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");
}

}  // namespace
}  // namespace composer::util::text_table_test

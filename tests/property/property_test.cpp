#include <doctest/doctest.h>

#include "tests/property/program.h"

namespace composer::property {
namespace {

TEST_CASE("A program is what its text says") {
  for (std::uint64_t number = 0; number < 200; ++number) {
    const std::string text = to_string(generate(/*seed=*/2, number, Style::WITH_KILLS));
    CHECK(to_string(parse(text)) == text);
  }
}

}  // namespace
}  // namespace composer::property

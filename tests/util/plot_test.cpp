#include "composer/util/plot.h"

#include <cmath>
#include <sstream>

#include "composer/core/error.h"
#include "tests/support/doctest.h"

namespace composer::plot_test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

int columns(const std::string& line) {  // all characters here are one column wide
  int count = 0;
  for (const char c : line) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

LogPlot falling() {
  return {.x = {1e-3, 1e-2, 1e-1, 1}, .y = {4, 3, 2, 1}, .mark = 1e-1, .x_name = "rate", .y_name = "loss"};
}

TEST_CASE("A falling line is drawn from the upper left to the lower right, in ASCII") {
  const std::string text = falling().draw({.width = 32, .height = 5, .utf8 = false});
  INFO(text);
  const auto lines = lines_of(text);
  REQUIRE(lines.size() == 9);
  CHECK(lines[0] == "    loss");
  CHECK(lines[1].starts_with("  4 |*"));
  CHECK(lines[3].starts_with("2.5 |"));
  CHECK(lines[5].starts_with("  1 |"));
  CHECK(lines[5].ends_with("*"));
  for (const auto& line : lines) CHECK(columns(line) <= 32);
}

}  // namespace
}  // namespace composer::plot_test

// docs/reference/trainer.md names each option as its description does, with its unit and its range. That its names and
// defaults are those of the structs, scripts/pages.py checks.
#include <string>
#include <utility>
#include <vector>

#include "composer/trainer/call_options.h"
#include "composer/trainer/trainer_options.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"
#include "tests/support/text.h"

namespace composer::test::options_page_test {
namespace {

struct Line {
  std::string name, comment;
};

// The lines "    .name = value,  // comment" of the block that begins with `start`.
std::vector<Line> lines_of(const std::string& page, const std::string& start) {
  std::vector<Line> lines;
  const std::size_t begin = page.find("```cpp\n" + start);
  REQUIRE(begin != std::string::npos);
  const std::size_t end = page.find("\n};", begin);
  for (std::size_t at = page.find("\n    .", begin); at < end; at = page.find("\n    .", at + 1)) {
    const std::string line = page.substr(at + 6, page.find('\n', at + 1) - at - 6);
    const std::size_t comment = line.find("// ");
    lines.push_back({line.substr(0, line.find(" = ")), comment == std::string::npos ? "" : line.substr(comment + 3)});
  }
  return lines;
}

template <class Options>
void check_page(const std::string& start, const std::vector<Option<Options>>& described) {
  const std::vector<Line> lines = lines_of(text_of(repository() / "docs/reference/trainer.md"), start);
  REQUIRE(lines.size() == described.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto& [name, comment] = lines[i];
    const Option<Options>& option = described[i];
    CAPTURE(comment);
    CHECK(name == option.name);
    CHECK_MESSAGE(contains(comment, option.rules.unit), name, " is in ", option.rules.unit);
    for (const auto& [must, holds] : option.limits)
      if (must.starts_with("be > 0") && !contains(must, ", or ")) CHECK_MESSAGE(contains(comment, "> 0"), name);
  }
}

TEST_CASE("The page about trainers has each option with the unit and the range of its description") {
  check_page("TrainerOptions options{", trainer_options());
  check_page("FitOptions fit{", fit_options());
  check_page("EvalOptions eval{", eval_options());
  check_page("PredictOptions predict{", predict_options());
}

TEST_CASE("The page about trainers says of each option of a fit how long it holds") {
  const std::string page = text_of(repository() / "docs/reference/trainer.md");
  const std::string table = page.substr(page.find("| option | applies to |"));
  const std::string rows = table.substr(0, table.find("\n\n"));
  for (const Option<FitOptions>& option : fit_options())
    CHECK_MESSAGE(contains(rows, '`' + option.name + '`'), option.name, " has no row");
}

TEST_CASE("The page about evaluators has a row for each of their fields, in their order") {
  const std::string page = text_of(repository() / "docs/reference/evaluators.md");
  std::size_t at = 0;
  for (const Option<Evaluator>& option : evaluator_options()) {
    at = page.find("\n| `" + option.name + "` |", at);
    CHECK_MESSAGE(at != std::string::npos, option.name, " has no row there");
  }
}

}  // namespace
}  // namespace composer::test::options_page_test

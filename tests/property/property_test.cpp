#include <csignal>

#include "tests/property/run.h"
#include "tests/property/shrink.h"
#include "tests/support/doctest.h"

namespace composer::property::property_test {
namespace {

// The shortest program that fails by the same rule, and what fails: run it with composer_property --run "...".
std::string reproducer(const Program& program, const Failure& failure) {
  const Program shortest = shrink(program, [&](const Program& candidate) {
    const auto found = run(candidate);
    return found && found->rule == failure.rule;
  });
  const auto found = run(shortest);
  return join(found ? found->rule : failure.rule, ": ", found ? found->text : failure.text, "\n  --run \"",
              to_string(shortest), "\"\n  shrunk from \"", to_string(program), '"');
}

TEST_CASE(
    "Whatever programs do with trainers, every batch is trained once and in order, and what is opened is closed") {
  constexpr std::uint64_t kPrograms = 500;
  std::signal(SIGINT, SIG_DFL);  // ignored where the tests are started in the background of a script
  std::signal(SIGTERM, SIG_DFL);
  for (std::uint64_t number = 0; number < kPrograms; ++number) {
    const Program program = generate(/*seed=*/1, number, Style::QUICK);
    const auto failure = run(program);
    if (!failure) continue;
    FAIL_CHECK("program ", number, ": ", reproducer(program, *failure));
    break;
  }
}

TEST_CASE("A program is what its text says") {
  for (std::uint64_t number = 0; number < 200; ++number) {
    const std::string text = to_string(generate(/*seed=*/2, number, Style::WITH_KILLS));
    CHECK(to_string(parse(text)) == text);
  }
}

}  // namespace
}  // namespace composer::property::property_test

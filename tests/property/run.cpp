#include "tests/property/run.h"

#include <csignal>
#include <thread>

#include "tests/property/operations.h"

namespace composer::property {

std::optional<Failure> run(const Program& program) {
  std::optional<Failure> failure;
  try {
    Operations all(consistent(program.setup));
    for (std::size_t i = 0; i < program.ops.size(); ++i) try {
        all(program.ops[i]);
      } catch (const Failure& found) {
        failure = Failure{found.rule, join("operation ", i + 1, ": ", found.text)};
        break;
      }
    if (!failure) all.finish();
  } catch (const Failure& found) {
    failure = Failure{found.rule, join("at the end: ", found.text)};
  } catch (const std::exception& error) {
    failure = Failure{"errors", describe(error)};
  }
  std::signal(SIGINT, SIG_DFL);  // also if that was what failed
  std::signal(SIGTERM, SIG_DFL);
  return failure;
}

std::optional<Failure> run_in_threads(const Program& one, const Program& other) {
  std::optional<Failure> here, there;
  std::thread thread([&] { there = run(other); });
  here = run(one);
  thread.join();
  return here ? here : there;
}

}  // namespace composer::property

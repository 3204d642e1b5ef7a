// What ranks return, as threads of the test.
#pragma once
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/dist/world.h"
#include "composer/util/threads_here.h"
#include "tests/support/in_ranks.h"

namespace composer::dist::test {

// Runs body(world) on each rank of a world, and returns what it returns, by rank. Throws the first rank's exception.
template <class Body>
auto results_in_ranks(int ranks, const Body& body, const Options& options = {}) {
  using Result = decltype(body(std::shared_ptr<World>()));
  std::vector<std::optional<Result>> results(static_cast<std::size_t>(ranks));
  composer::test::in_ranks(
      ranks,
      [&](World& world) {
        use_threads_here(1);
        const std::shared_ptr<World> not_owned(std::shared_ptr<void>(), &world);
        results[static_cast<std::size_t>(world.rank())] = body(not_owned);
      },
      options);
  std::vector<Result> all;
  for (auto& result : results) all.push_back(std::move(*result));
  return all;
}

// As results_in_ranks(), but returns the text of the exception of each rank; empty if there was none.
template <class Body>
std::vector<std::string> errors_in_ranks(int ranks, const Body& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  try {
    results_in_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      try {
        body(world);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(world->rank())] = error.what();
      }
      return true;
    });
  } catch (const PeerLost&) {  // NOLINT(bugprone-empty-catch): the end of a world tells once more which rank has failed
  }
  return errors;
}

}  // namespace composer::dist::test

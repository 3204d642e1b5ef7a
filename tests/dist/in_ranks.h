// Ranks as threads of the test.
#pragma once
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "composer/dist/world.h"
#include "composer/util/threads_here.h"

namespace composer::dist::test {

// Runs body(world) on each rank of a world, and returns what it returns, by rank. Throws the first rank's exception.
template <class Body>
auto in_ranks(int ranks, const Body& body) {
  using Result = decltype(body(std::shared_ptr<World>()));
  Options options;
  options.collective_timeout = std::chrono::seconds(30);  // a rank that throws leaves the others waiting
  const std::vector<std::shared_ptr<World>> worlds = World::in_threads(ranks, options);
  std::vector<std::optional<Result>> results(worlds.size());
  std::vector<std::exception_ptr> errors(worlds.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < worlds.size(); ++r)
    threads.emplace_back([&, r] {
      use_threads_here(1);
      try {
        results[r] = body(worlds[r]);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  std::vector<Result> all;
  for (auto& result : results) all.push_back(std::move(*result));
  return all;
}

// As in_ranks(), but returns the text of the exception of each rank; empty if there was none.
template <class Body>
std::vector<std::string> errors_in_ranks(int ranks, const Body& body) {
  return in_ranks(ranks, [&](const std::shared_ptr<World>& world) -> std::string {
    try {
      body(world);
    } catch (const std::exception& error) {
      return error.what();
    }
    return {};
  });
}

}  // namespace composer::dist::test

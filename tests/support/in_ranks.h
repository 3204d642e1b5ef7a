#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "composer/dist/world.h"

namespace composer::test {

// Calls the function on `size` threads, each with the world of one rank, and then shutdown(). Throws the exception of
// the first rank that fails; the others are told, so that they do not wait for it.
inline void in_ranks(int size, const std::function<void(dist::World&)>& function, const dist::Options& options = {}) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (const auto& world : dist::World::in_threads(size, options))
      threads.emplace_back([&function, &error = errors[static_cast<std::size_t>(world->rank())], world] {
        try {
          function(*world);
          world->shutdown();
        } catch (const std::exception& failure) {
          error = std::current_exception();
          world->fail(failure.what());
        }
      });
  }
  for (const bool is_of_another : {false, true})  // the cause before its consequences
    for (const std::exception_ptr& error : errors) try {
        if (error) std::rethrow_exception(error);
      } catch (const dist::PeerLost&) {
        if (is_of_another) throw;
      }
}

}  // namespace composer::test

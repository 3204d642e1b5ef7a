#pragma once
// Runs that end as by a kill.
#include <cstdint>
#include <exception>
#include <functional>

#include "tests/support/tiny.h"

namespace composer::test {

// What a program dies of: what it leaves is on the disk alone.
struct Killed : std::exception {
  const char* what() const noexcept override { return "killed"; }
};

// Acts at such an event, when so many batches have been trained.
inline At at_batch(Event event, std::int64_t batch, const std::function<void(const State&)>& act) {
  return At([=](Event now, const State& state) {
    if (now == event && state.timestamp.batch == batch) act(state);
  });
}

inline At killed_at(Event event, std::int64_t batch) {
  return at_batch(event, batch, [](const State&) { throw Killed(); });
}

}  // namespace composer::test

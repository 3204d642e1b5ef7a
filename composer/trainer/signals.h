#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

#include "composer/core/time.h"

namespace composer {

// Between begin() and end(), the first SIGINT and the first SIGTERM are noted instead of ending the process; a second
// signal of the same kind ends it at once. All watches of the process, on any thread, share one pair of handlers: the
// first begin() installs them, and the last end() removes them. A signal that the program handles or ignores itself is
// left alone, and so is a handler that the program installs meanwhile. Each watch notes the signals that arrive between
// its own begin() and end().
class SignalWatch {
 public:
  SignalWatch() = default;
  ~SignalWatch() { end(); }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  void begin();  // clears what was noted, and re-arms the handlers for one signal of each kind
  void end();    // does nothing without begin()

  // What was noted since the last begin(), also after end(). Both functions may be called from any thread.
  int pending() const;                   // the number of the signal, 0: none; an atomic load
  std::optional<Seconds> since() const;  // time since the signal; unset: none

 private:
  static constexpr std::uint64_t kEnded = ~std::uint64_t{0};
  std::atomic<std::uint64_t> first_ = kEnded;  // count of the process's signals at begin()
  std::atomic<int> noted_ = 0;                 // the noted signal, set by end()
};

}  // namespace composer

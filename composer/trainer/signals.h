#pragma once
#include <atomic>
#include <cstdint>
#include <optional>

#include "composer/core/time.h"

namespace composer {

// Between begin() and end(), the first SIGINT and the first SIGTERM are noted instead of ending the process; the second
// of its kind ends it at once. There is one pair of handlers for all watches of the process, in whatever threads they
// are: the first begin() installs it, the last end() removes it. A signal that the program handles or ignores itself is
// left alone, and so is a handler that the program installs meanwhile. Each watch notes the signals that come between
// its own begin() and end().
class SignalWatch {
 public:
  SignalWatch() = default;
  ~SignalWatch() { end(); }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  void begin();  // forgets what was noted; every begin() arms the handlers anew, for one signal of each kind
  void end();    // without begin(): does nothing

  // What was noted since the last begin(), also after end(). Both may be asked by any thread.
  int pending() const;                   // the signal, 0 if none came; an atomic load
  std::optional<Seconds> since() const;  // time since it came; unset if none came

 private:
  static constexpr std::uint64_t kEnded = ~std::uint64_t{0};
  std::atomic<std::uint64_t> first_ = kEnded;  // signals of the process before begin()
  std::atomic<int> noted_ = 0;                 // the signal, once ended
};

}  // namespace composer

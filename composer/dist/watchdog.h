#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "composer/dist/failure_detector.h"
#include "composer/dist/sockets.h"
#include "composer/dist/store.h"

namespace composer::dist {

// The two threads that drive a FailureDetector. One talks to the store. It may hang there, so no other thread waits for
// it long. The other watches the clock, ends the collectives of this process after a verdict, and ends the process by
// force if its main thread does not return. All functions may be called from any thread.
class Watchdog {
 public:
  struct Setup {
    DetectorRules rules;
    int rank = 0, size = 1;
    int store_rank = -1;                     // rank whose process serves the store; -1: none of the ranks
    StorePtr store;                          // a connection that nothing else uses
    std::shared_ptr<Sockets> store_sockets;  // of that connection; null if it has none
    std::function<void()> abort;             // makes all collectives fail; called at most once
    std::function<std::uint64_t()> calls;    // number of beginnings and ends of collectives so far
  };
  static constexpr int kExitStatus = 75;

  explicit Watchdog(Setup setup);
  // After a verdict, waits until the other ranks know it.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void at(std::string_view event, std::int64_t epoch, std::int64_t batch) noexcept;
  // Waits for a verdict after a collective has failed. Gives the caller time to end the process.
  std::optional<Verdict> wait_for_verdict();
  // To be called if a collective timed out. Accuses the rank that hangs, if it can be told from the others.
  void timed_out();
  // Tells the other ranks that this rank ends with an error. Waits a short time until they can know it.
  void fail(const std::string& why);
  // The orderly end: waits until all ranks have called it. Returns false if a rank was lost or the time is over.
  bool leave(std::chrono::milliseconds limit);
  std::string positions() const;  // positions of all ranks, for a message

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread supervisor_;
};

}  // namespace composer::dist

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

// The threads around a FailureDetector. One talks to the store; it may hang there, so nothing ever waits for it long.
// The other watches the clock, ends the collectives of this process after a verdict, and ends the process by force if
// its main thread does not come back. All functions may be called from any thread.
class Watchdog {
 public:
  struct Setup {
    DetectorRules rules;
    int rank = 0, size = 1;
    int store_rank = -1;                     // of the process that serves the store; -1: none of the ranks
    StorePtr store;                          // a connection for this alone
    std::shared_ptr<Sockets> store_sockets;  // of that connection; null if it has none
    std::function<void()> abort;             // makes all collectives fail; called once, at most
    std::function<std::uint64_t()> calls;    // how many beginnings and ends of collectives there were
  };
  static constexpr int kExitStatus = 75;

  explicit Watchdog(Setup setup);
  // After a verdict, waits until the other ranks know it.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void at(std::string_view event, std::int64_t epoch, std::int64_t batch) noexcept;
  // Waits for a verdict after a collective has failed. The caller is given time to end the process.
  std::optional<Verdict> wait_for_verdict();
  // A collective timed out: accuses the rank that hangs, if one can be told from the others.
  void timed_out();
  // Tells the others that this rank ends with an error. Waits until they can know it, for a short time.
  void fail(const std::string& why);
  // The orderly end: waits until all ranks have called it. False if a rank was lost or the time is over.
  bool leave(std::chrono::milliseconds limit);
  std::string positions() const;  // of all ranks, for a message

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread supervisor_;
};

}  // namespace composer::dist

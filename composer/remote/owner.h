#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>

#include "composer/net/remote_store.h"

namespace composer {

// Decides which of the processes that save the same run below a URI owns it: the one that began last. A small file
// there names the owner. The server's clock decides the order, so a process whose first request comes late does not
// take the run from one that began after it. Processes that began within kClockError of each other, or at a place
// without such a clock, are ordered by their first writes of the file. Nothing expires, so a run that is resumed after
// a crash takes over at once. A process that lost the run finds out when it calls hold(). Use from one thread at a
// time.
class RemoteOwner {
 public:
  using Clock = std::chrono::steady_clock;
  // The Date header has no fractions of a second, and the servers of one bucket have separate clocks.
  static constexpr std::chrono::seconds kClockError{5};

  explicit RemoteOwner(std::string run_name);  // the process begins now

  // Records that the process begins to save the run again, or began to at another time.
  void begin(Clock::time_point at = Clock::now());
  // The first call makes this process the owner, with a warning if the previous owner may still be running. Throws
  // CheckpointError if the run is owned by a process that began later and may still be running; in later calls, if
  // another process that did not begin earlier has become the owner. All further calls until begin() then throw as
  // well. Also throws the errors of the store.
  void hold(net::RemoteStore& store, const std::stop_token& stop = {});
  // Removes the file. If the previous owner may still be running, or the credentials do not permit deletion, the file
  // stays and is marked as ended. Does nothing unless this process is the owner. The next hold() counts as the first
  // call.
  void release(net::RemoteStore& store, const std::stop_token& stop = {});

 private:
  std::optional<std::int64_t> began_at(const net::RemoteStore& store) const;
  void remove(net::RemoteStore& store, const std::stop_token& stop) const;
  void write(net::RemoteStore& store, bool ended, const std::stop_token& stop) const;

  std::string run_name_, file_, token_;
  std::string lost_;  // why another process owns the run; empty: none is known to
  Clock::time_point began_;
  bool held_ = false, leaves_file_ = false;
};

}  // namespace composer

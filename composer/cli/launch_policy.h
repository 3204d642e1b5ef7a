#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace composer::cli {

// Exit code with which a rank reports that another rank is to blame for its end.
constexpr int kPeerLost = 75;

// How a process ended.
struct Ending {
  int code = 0;    // exit code, if `signal` is 0
  int signal = 0;  // the signal that killed it; 0: none
  bool core_dumped = false;

  bool good() const { return code == 0 && signal == 0; }
  int status() const { return signal != 0 ? 128 + signal : code; }  // the exit status as a shell reports it
};

// Describes an ending: "exited with 3", "was killed by SIGKILL (out of memory?)".
std::string to_string(const Ending& ending);
std::string signal_name(int number);  // for example "SIGTERM"

using Ends = std::vector<std::pair<int, Ending>>;  // ranks and how they ended

// Decides when the ranks of one start are ended, and which rank is to blame: the first that fails. A rank that exits
// with kPeerLost is to blame only if no other rank fails within `blame_wait`. Has no access to processes; `now` is the
// time of a monotonic clock.
class EndPolicy {
 public:
  using Time = std::chrono::duration<double>;
  enum class Action : std::uint8_t { WAIT, TERMINATE, KILL };

  EndPolicy(int ranks, Time grace, Time blame_wait = Time(3));

  // Reports ranks that ended since the last call, in any order.
  void ended(const Ends& ends, Time now);
  // Reports that a signal that requests the end was passed on to all ranks. A rank that ends by this signal is no
  // failure.
  void asked_to_end(int signal);

  // The next action. TERMINATE (SIGTERM for everything that runs) and KILL are returned at most once each.
  Action next(Time now);
  // The time at which next() must be called again even if nothing happens.
  std::optional<Time> wake() const;

  bool all_ended() const { return static_cast<int>(endings_.size()) == ranks_; }
  // The rank to blame. If it exited with kPeerLost, it may change until all_ended().
  std::optional<int> culprit() const;
  // Ranks that ran when KILL was returned.
  const std::vector<int>& killed() const { return killed_; }
  const std::map<int, Ending>& endings() const { return endings_; }
  // To be called after all_ended(): 0, or the culprit's status, or 128 + the first signal of asked_to_end().
  int exit_code() const;

 private:
  void take_failure(int rank, const Ending& ending, Time now);

  int ranks_;
  Time grace_, blame_wait_;
  std::map<int, Ending> endings_;
  std::optional<int> failed_;       // the first failure other than kPeerLost
  std::optional<int> lost_a_peer_;  // the first with kPeerLost
  std::optional<Time> blame_until_, kill_at_;
  std::vector<int> killed_;
  std::vector<int> asked_;  // signals of asked_to_end()
  bool terminated_ = false, all_killed_ = false;
};

}  // namespace composer::cli

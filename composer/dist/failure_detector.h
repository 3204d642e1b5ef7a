#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "composer/dist/awake_clock.h"
#include "composer/dist/heartbeats.h"
#include "composer/dist/judgement.h"
#include "composer/dist/store_contact.h"

namespace composer::dist {

struct DetectorRules {
  std::chrono::milliseconds dead_after{5000};  // a rank is lost after a silence of this length
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds unwind{3000};    // from a verdict until the process is ended by force
  std::chrono::milliseconds grace{60000};    // the same, if the main thread has taken the verdict: it may be saving
  std::chrono::milliseconds farewell{2000};  // from the end of a program that trains until its rank counts as failed
  bool may_exit = true;                      // whether the process may be ended by force
};

// Decides for one rank which ranks are alive. A state machine without threads, clocks or sockets: its owner reads the
// clock, talks to the store and carries out the actions. It has no lock, so its owner makes one call at a time;
// Watchdog's mutex guards it as a whole, with all of its fields.
//
// Each rank writes a heartbeat into the store and reads the heartbeats of all. A rank is lost if its heartbeat does not
// change for `dead_after` on the reader's clock. The reader then proposes a verdict. The store keeps the first one, and
// all ranks act on that one alone. If the store itself does not answer, the rank that serves it is lost.
//
// Time that this process was suspended does not count as silence of others. If the others ended meanwhile, the rank
// blames itself.
class FailureDetector {
 public:
  using Time = std::chrono::milliseconds;  // on a clock that never goes back

  // `store_rank` is the rank whose process serves the store; -1 if the launcher does.
  FailureDetector(const DetectorRules& rules, int rank, int size, int store_rank, Time now);

  // The texts that the store may have in place of a verdict that names a rank.
  static constexpr std::string_view kNone = "-", kFinished = "finished";

  // For the thread that talks to the store. In each turn it writes what turn() returns, reads the heartbeats and the
  // verdict, and passes them to heard().
  struct Turn {
    std::string beat;                     // to be set as this rank's heartbeat
    std::optional<std::string> proposal;  // to be set as the verdict if there is none
  };
  // `calls` counts the beginnings and ends of this rank's collectives. It is odd while the main thread is in one.
  Turn turn(std::string_view position, std::uint64_t calls = 0);
  void heard(Time now, const std::vector<std::string>& beats, const std::string& verdict);
  void store_failed(Time now, const std::string& why);  // to be called if the connection broke
  Time pause() const;                                   // time until the next turn
  bool needs_turns() const;

  // For the thread that supervises. It calls tick() several times per heartbeat, and after each of the calls above.
  enum class Action {
    NONE,
    ABORT,  // end all collectives; returned once
    EXIT,   // end the process by force
  };
  Action tick(Time now);

  // For the main thread.
  void fail(const std::string& why, const std::string& position = {});  // this rank ends with an error
  // A collective of this rank timed out although all ranks are alive. If exactly one rank is at another position than
  // the others, it is accused of hanging.
  void timed_out();
  void leave();                   // this rank has finished its work
  void take() { taken_ = true; }  // the main thread knows the verdict and unwinds
  const std::optional<Verdict>& verdict() const { return judged_.verdict(); }
  bool has_left() const { return left_; }  // after leave(): all ranks have finished, and this process may end
  // The detector's clock, which leaves out the time that this process was suspended.
  Time awake() const { return clock_.awake(); }
  // How long the main thread waits for a verdict after a collective has failed.
  Time patience() const { return 2 * rules_.dead_after + 4 * rules_.heartbeat; }
  bool may_end() const;  // after a verdict: whether the others know it, or cannot be reached
  std::string positions() const { return ranks_.positions(); }  // of all ranks, for a message

 private:
  void accuse();
  void accuse_itself(Time waited);
  void wait_for_others();
  void decide(const Verdict& verdict) { judged_.decide(verdict, clock_.awake()); }
  bool serves() const { return rank_ == store_rank_; }
  std::string name_of(int rank) const;
  std::string position_of(int rank) const;
  Verdict blame_gap() const;
  Verdict blame_suspension(Time length) const;

  const DetectorRules rules_;
  const int rank_;
  const int store_rank_;

  AwakeClock clock_;
  StoreContact store_;
  Heartbeats ranks_;
  OwnBeats own_;
  CollectiveWait wait_;
  Judgement judged_;

  int hurried_ = 0;       // turns that did not wait for the next heartbeat
  bool all_bye_ = false;  // whether this rank has seen BYE of all; it tells the store so
  bool taken_ = false;
  bool left_ = false;
  Time left_at_{0};  // on the awake clock
};

}  // namespace composer::dist

#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace composer::dist {

// Which rank is to blame for the end of all, and what is known of it. -1: none of the ranks.
struct Verdict {
  int rank = -1;
  std::string text;
};

struct DetectorRules {
  std::chrono::milliseconds dead_after{5000};  // silence after which a rank is lost
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds unwind{3000};    // from a verdict to the end by force
  std::chrono::milliseconds grace{60000};    // the same if the main thread has taken the verdict: it may be saving
  std::chrono::milliseconds farewell{2000};  // from the end of a program that trains to the failure of its rank
  bool may_exit = true;                      // whether the process may be ended by force
};

// The decisions of one rank about the life of all: a state machine without threads, clocks or sockets. Its owner reads
// the clock, talks to the store and carries out the actions, one call at a time.
//
// Each rank writes a heartbeat into the store and reads those of all. A rank whose heartbeat stays the same for
// `dead_after` on the reader's clock is lost. The reader proposes a verdict; the store keeps the first one, and all
// ranks act on that one alone. If the store itself does not answer, the rank that serves it is lost.
//
// Time that this process was suspended does not count as silence of others. If the others ended meanwhile, the rank
// blames itself.
class FailureDetector {
 public:
  using Time = std::chrono::milliseconds;  // on a clock that never goes back

  // `store_rank` is the rank whose process serves the store; -1 if the launcher does.
  FailureDetector(const DetectorRules& rules, int rank, int size, int store_rank, Time now);

  // What the store has in place of a verdict that names a rank.
  static constexpr std::string_view kNone = "-", kFinished = "finished";

  // For the thread that talks to the store. In each turn it writes what turn() says, reads, and calls heard().
  struct Turn {
    std::string beat;                     // to be set as this rank's heartbeat
    std::optional<std::string> proposal;  // to be set as the verdict if there is none
  };
  // `calls` counts the beginnings and ends of this rank's collectives: it is odd while the main thread is in one.
  Turn turn(std::string_view position, std::uint64_t calls = 0);
  void heard(Time now, const std::vector<std::string>& beats, const std::string& verdict);
  void store_failed(Time now, const std::string& why);  // the connection broke
  Time pause() const;                                   // until the next turn
  bool needs_turns() const;

  // For the thread that supervises; to be called several times per heartbeat, and after each call above.
  enum class Action {
    NONE,
    ABORT,  // end all collectives; once
    EXIT,   // end the process by force
  };
  Action tick(Time now);

  // For the main thread.
  void fail(const std::string& why, const std::string& position = {});  // this rank ends with an error
  // A collective of this rank timed out although all ranks are alive: if one of them is where no other is, it hangs.
  void timed_out();
  void leave();                   // this rank has finished its work
  void take() { taken_ = true; }  // the main thread knows the verdict and unwinds
  const std::optional<Verdict>& verdict() const { return verdict_; }
  bool has_left() const { return left_; }  // after leave(): all ranks have finished, and this process may end
  // How long the main thread waits for a verdict after a collective has failed.
  // On the clock awake(), which leaves out the time that this process was suspended.
  Time awake() const { return awake_; }
  Time patience() const { return 2 * rules_.dead_after + 4 * rules_.heartbeat; }
  bool may_end() const;           // after a verdict: the others know it, or cannot be reached
  std::string positions() const;  // of all ranks, for a message

 private:
  // WORKING until leave(), then BYE. When all are BYE, the store's verdict becomes kFinished, and then each is LEFT.
  // TOLD: knows that the verdict names a rank.
  enum Phase : char { WORKING = 'w', TOLD = 'v', BYE = 'b', LEFT = 'l' };
  // After a gap, heartbeats that were on their way may still arrive from a rank that has ended: one that was not read
  // before the gap, and one that was not delivered.
  static constexpr int kEnoughNews = 3;
  struct Peer {
    std::string beat, position;
    Phase phase = WORKING;
    std::uint64_t collectives = 0;  // that it has ended
    Time silence{0};
    Time finished{0};        // for how long it has been BYE, while this rank waits for it in one collective
    int news = kEnoughNews;  // changes of the heartbeat since the last gap
  };
  struct Gap {  // a long time without news, after which the silence of others is not their fault
    int rank = -1;
    Time length{0};
  };

  void advance(Time now);
  void note_gap(Time real, Time awake);
  void read_beat(Peer& peer, const std::string& beat);
  void accuse();
  void accuse_itself(Time waited);
  void wait_for_others();
  void decide(const Verdict& verdict);
  template <class Property>
  bool all_others(Property&& holds) const;
  bool is_lost(const Peer& peer) const { return peer.silence > rules_.dead_after; }
  bool serves() const { return rank_ == store_rank_; }
  Time long_gap() const;
  std::string name_of(int rank) const;
  std::string position_of(int rank) const;
  Verdict blame_gap() const;
  Verdict blame_suspension(Time length) const;

  const DetectorRules rules_;
  const int rank_, size_, store_rank_;

  Time now_, awake_{0};
  Time heard_real_, heard_awake_{0};
  Time suspended_{0}, suspended_until_{0};  // the last suspension: its length, and its end on the clock awake_
  Gap gap_;
  std::vector<Peer> peers_;

  std::uint64_t turns_ = 0, calls_ = 0;
  int hurried_ = 0;
  Phase phase_ = WORKING, written_ = WORKING;  // written_: the last that the store is known to have
  Phase writing_ = WORKING;
  std::optional<Verdict> proposal_, verdict_;
  bool all_bye_ = false;
  bool in_force_ = false;  // the verdict is the store's
  bool store_failed_ = false, taken_ = false, left_ = false, aborted_ = false;
  Time verdict_at_{0}, left_at_{0};  // on the clock awake_
};

}  // namespace composer::dist

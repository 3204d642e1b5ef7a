#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace composer::dist {

// The phase that a rank's heartbeat reports. A rank is WORKING until it has finished its work, then BYE. When all are
// BYE, the store says so, and each becomes LEFT. TOLD: the rank knows a verdict that names a rank.
enum class RankPhase : char { WORKING = 'w', TOLD = 'v', BYE = 'b', LEFT = 'l' };

// The heartbeats of this rank: its current phase, and the phase that the store is known to have.
class OwnBeats {
 public:
  // The next heartbeat; each differs from all earlier ones. `collectives`: the number that this rank has ended.
  std::string next(std::uint64_t collectives, std::string_view position);
  void stored() { stored_ = last_; }  // to be called once the store has the last heartbeat

  RankPhase phase() const { return phase_; }
  void enter(RankPhase phase) { phase_ = phase; }
  bool is_stored(RankPhase phase) const { return stored_ == phase; }

 private:
  RankPhase phase_ = RankPhase::WORKING;
  RankPhase last_ = RankPhase::WORKING;    // in the last heartbeat
  RankPhase stored_ = RankPhase::WORKING;  // the last phase that the store is known to have
  std::uint64_t count_ = 0;
};

// The heartbeats of all ranks, as one of them reads them. Measures how long each has not changed.
class Heartbeats {
 public:
  using Time = std::chrono::milliseconds;
  // Changes after a gap that prove a rank to be alive. The first two prove nothing: a rank that has ended may have one
  // heartbeat that was not read before the gap, and one that was not yet delivered.
  static constexpr int kEnoughNews = 3;
  struct Rank {
    std::string beat;
    std::string position;
    RankPhase phase = RankPhase::WORKING;
    std::uint64_t collectives = 0;  // number of collectives that the rank has ended
    Time silence{0};
    int news = kEnoughNews;  // changes of the heartbeat since the last gap, at most kEnoughNews
  };

  // A rank that has been silent for longer than `dead_after` is lost.
  Heartbeats(int size, int own_rank, Time dead_after)
      : own_rank_(own_rank), dead_after_(dead_after), ranks_(static_cast<std::size_t>(size)) {}

  void read(const std::vector<std::string>& beats, Time waited);  // `waited`: time since the last call
  void note_gap();  // after a long time without answers from the store, for which the other ranks are not to blame

  int own_rank() const { return own_rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  const Rank& operator[](int rank) const { return ranks_.at(static_cast<std::size_t>(rank)); }
  bool is_lost(int rank) const { return (*this)[rank].silence > dead_after_; }
  bool has_enough_news(int rank) const { return (*this)[rank].news >= kEnoughNews; }
  template <class Property>
  bool all_others(Property&& holds) const {
    for (int rank = 0; rank < size(); ++rank)
      if (rank != own_rank_ && !holds(rank)) return false;
    return true;
  }
  int longest_lost() const;        // among the others that are WORKING; -1: none is lost
  int only_one_elsewhere() const;  // the rank at another position than this rank; -1: none or several
  std::string positions() const;   // for a message

 private:
  static void read_one(Rank& rank, const std::string& beat);

  int own_rank_;
  Time dead_after_;
  std::vector<Rank> ranks_;
};

// Measures how long this rank has been waiting, in one collective, for ranks that have finished and will not take part.
class CollectiveWait {
 public:
  using Time = std::chrono::milliseconds;

  explicit CollectiveWait(int size) : waited_(static_cast<std::size_t>(size)) {}

  // `calls` counts the beginnings and ends of this rank's collectives. It is odd while this rank is in one.
  void at(std::uint64_t calls);
  std::uint64_t ended() const { return calls_ / 2; }
  // Adds to the time that has been waited. Returns a rank that has been waited for longer than `limit`; -1: none.
  int add(Time waited, const Heartbeats& ranks, Time limit);

 private:
  std::uint64_t calls_ = 0;
  std::vector<Time> waited_;  // for each rank
};

}  // namespace composer::dist

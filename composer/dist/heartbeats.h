#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace composer::dist {

// Where a rank is, as its heartbeat says. WORKING until it has finished its work, then BYE. When all are BYE, the store
// says so, and then each is LEFT. TOLD: knows that the verdict names a rank.
enum class RankPhase : char { WORKING = 'w', TOLD = 'v', BYE = 'b', LEFT = 'l' };

// The heartbeats of this rank: its phase, and what the store is known to have of it.
class OwnBeats {
 public:
  // The next one, each different from those before. `collectives`: that this rank has ended.
  std::string next(std::uint64_t collectives, std::string_view position);
  void stored() { stored_ = last_; }  // the store has the last one

  RankPhase phase() const { return phase_; }
  void enter(RankPhase phase) { phase_ = phase; }
  bool is_stored(RankPhase phase) const { return stored_ == phase; }

 private:
  RankPhase phase_ = RankPhase::WORKING;
  RankPhase last_ = RankPhase::WORKING;    // in the last heartbeat
  RankPhase stored_ = RankPhase::WORKING;  // the last that the store is known to have
  std::uint64_t count_ = 0;
};

// The heartbeats of all ranks, as one of them reads them: for how long each has been the same.
class Heartbeats {
 public:
  using Time = std::chrono::milliseconds;
  // After a gap, heartbeats that were on their way may still arrive from a rank that has ended: one that was not read
  // before the gap, and one that was not delivered.
  static constexpr int kEnoughNews = 3;
  struct Rank {
    std::string beat;
    std::string position;
    RankPhase phase = RankPhase::WORKING;
    std::uint64_t collectives = 0;  // that it has ended
    Time silence{0};
    int news = kEnoughNews;  // changes of the heartbeat since the last gap
  };

  // A rank that has been silent for longer than `dead_after` is lost.
  Heartbeats(int size, int own_rank, Time dead_after)
      : own_rank_(own_rank), dead_after_(dead_after), ranks_(static_cast<std::size_t>(size)) {}

  void read(const std::vector<std::string>& beats, Time waited);  // since they were read before
  void note_gap();  // there was no answer for long: the silence of others is not their fault

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
  int longest_lost() const;        // of the others that should be working; -1: none is lost
  int only_one_elsewhere() const;  // at another position than this rank; -1: none or several
  std::string positions() const;   // for a message

 private:
  static void read_one(Rank& rank, const std::string& beat);

  int own_rank_;
  Time dead_after_;
  std::vector<Rank> ranks_;
};

// For how long this rank has been waiting, in one collective, for ranks that have finished and will take part in none.
class CollectiveWait {
 public:
  using Time = std::chrono::milliseconds;

  explicit CollectiveWait(int size) : waited_(static_cast<std::size_t>(size)) {}

  // `calls` counts the beginnings and ends of this rank's collectives: it is odd while it is in one.
  void at(std::uint64_t calls);
  std::uint64_t ended() const { return calls_ / 2; }
  // Counts time. A rank that has been waited for longer than `limit`; -1: none.
  int add(Time waited, const Heartbeats& ranks, Time limit);

 private:
  std::uint64_t calls_ = 0;
  std::vector<Time> waited_;  // for each rank
};

}  // namespace composer::dist

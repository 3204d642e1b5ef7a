#include "composer/dist/heartbeats.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "composer/core/error.h"

namespace composer::dist {

std::string OwnBeats::next(std::uint64_t collectives, std::string_view position) {
  last_ = phase_;
  return join(++count_, ' ', static_cast<char>(phase_), collectives, ' ', position);
}

void Heartbeats::read(const std::vector<std::string>& beats, Time waited) {
  const Time silence = std::min(waited, dead_after_ * 3 / 4);  // one late answer proves nothing
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (beats[i] != ranks_[i].beat)
      read_one(ranks_[i], beats[i]);
    else
      ranks_[i].silence += silence;
  }
}

void Heartbeats::read_one(Rank& rank, const std::string& beat) {
  rank.beat = beat;
  rank.silence = Time(0);
  rank.news = std::min(rank.news + 1, kEnoughNews);
  const std::size_t space = beat.find(' ');
  if (space == std::string::npos || space + 2 >= beat.size()) return;
  rank.phase = static_cast<RankPhase>(beat[space + 1]);
  const char* end = beat.data() + beat.size();
  const char* rest = std::from_chars(beat.data() + space + 2, end, rank.collectives).ptr;
  rank.position.assign(rest == end ? rest : rest + 1, end);
}

void Heartbeats::note_gap() {
  for (Rank& rank : ranks_) rank.news = 0;
}

int Heartbeats::longest_lost() const {
  int lost = -1;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == own_rank_ || (*this)[rank].phase != RankPhase::WORKING || !is_lost(rank)) continue;
    if (lost < 0 || (*this)[rank].silence > (*this)[lost].silence) lost = rank;
  }
  return lost;
}

int Heartbeats::only_one_elsewhere() const {
  int elsewhere = -1;
  for (int rank = 0; rank < size(); ++rank) {
    if ((*this)[rank].position == (*this)[own_rank_].position) continue;
    if (elsewhere >= 0) return -1;
    elsewhere = rank;
  }
  return elsewhere;
}

std::string Heartbeats::positions() const {
  std::string text;
  for (int rank = 0; rank < size(); ++rank) {
    const Rank& one = (*this)[rank];
    const std::string position = one.position.empty() ? "unknown" : one.position;
    text += join(rank > 0 ? "; " : "", "rank ", rank, ": ",
                 one.phase == RankPhase::BYE ? "has called shutdown()" : position);
  }
  return text;
}

void CollectiveWait::at(std::uint64_t calls) {
  if (calls != std::exchange(calls_, calls)) std::ranges::fill(waited_, Time(0));
}

// The finished rank may already have ended the current collective: not all operations wait for all ranks. Therefore
// ranks that have ended more collectives than this one do not count.
int CollectiveWait::add(Time waited, const Heartbeats& ranks, Time limit) {
  if (calls_ % 2 == 0) return -1;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.own_rank()) continue;
    if (ranks[rank].phase != RankPhase::BYE || ranks[rank].collectives > ended()) continue;
    Time& all = waited_.at(static_cast<std::size_t>(rank));
    all += waited;
    if (all > limit) return rank;
  }
  return -1;
}

}  // namespace composer::dist

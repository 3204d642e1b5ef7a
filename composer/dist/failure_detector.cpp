#include "composer/dist/failure_detector.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "composer/core/error.h"
#include "composer/util/text.h"

namespace composer::dist {
namespace {

const std::string kPosition = "; its last position was ";

constexpr const char* kOfAll =
    ": fit(), eval(), predict(), save_checkpoint() and other calls of a trainer are for all ranks";

std::string seconds_to_tenths(FailureDetector::Time time) {
  return util::printed("%.1f s", static_cast<double>(time.count()) / 1000);
}

std::string encode(const Verdict& verdict) { return join(verdict.rank, '|', verdict.text); }

Verdict decode(const std::string& text) {
  const std::size_t bar = text.find('|');
  if (bar == std::string::npos) return {-1, text};
  return {std::atoi(text.c_str()), text.substr(bar + 1)};
}

}  // namespace

FailureDetector::FailureDetector(const DetectorRules& rules, int rank, int size, int store_rank, Time now)
    : rules_(rules),
      rank_(rank),
      size_(size),
      store_rank_(store_rank),
      now_(now),
      heard_real_(now),
      peers_(static_cast<std::size_t>(size)) {}

// A step of the clock counts only up to a part of the limit. A longer one means that this process was suspended.
void FailureDetector::advance(Time now) {
  const Time step = std::max(now - now_, Time(0)), most = rules_.dead_after / 4;
  now_ = std::max(now, now_);
  awake_ += std::min(step, most);
  if (step <= most) return;
  suspended_ = step;
  suspended_until_ = awake_;
}

FailureDetector::Time FailureDetector::long_gap() const {
  return std::max(rules_.dead_after - 2 * rules_.heartbeat, rules_.dead_after / 2);
}

std::string FailureDetector::name_of(int rank) const {
  if (rank < 0) return "the launcher's store";
  return join("rank ", rank, rank == store_rank_ ? ", which serves the store," : "");
}

std::string FailureDetector::position_of(int rank) const {
  if (rank < 0 || peers_[static_cast<std::size_t>(rank)].position.empty()) return {};
  return kPosition + peers_[static_cast<std::size_t>(rank)].position;
}

FailureDetector::Turn FailureDetector::turn(std::string_view position, std::uint64_t calls) {
  if (calls != std::exchange(calls_, calls))
    for (Peer& peer : peers_) peer.finished = Time(0);
  if (phase_ != WORKING || proposal_ || verdict_) ++hurried_;
  writing_ = phase_;
  Turn turn{join(++turns_, ' ', static_cast<char>(phase_), calls_ / 2, ' ', position), std::nullopt};
  if (in_force_ || phase_ == LEFT) return turn;
  if (proposal_)
    turn.proposal = encode(*proposal_);
  else if (all_bye_)
    turn.proposal = kFinished;
  return turn;
}

void FailureDetector::note_gap(Time real, Time awake) {
  if (real < long_gap()) return;
  gap_ = {real - awake > awake ? rank_ : store_rank_, real};
  for (Peer& peer : peers_) peer.news = 0;
}

void FailureDetector::read_beat(Peer& peer, const std::string& beat) {
  peer.beat = beat;
  peer.silence = Time(0);
  peer.news = std::min(peer.news + 1, kEnoughNews);
  const std::size_t space = beat.find(' ');
  if (space == std::string::npos || space + 2 >= beat.size()) return;
  peer.phase = static_cast<Phase>(beat[space + 1]);
  const char* end = beat.data() + beat.size();
  const char* rest = std::from_chars(beat.data() + space + 2, end, peer.collectives).ptr;
  peer.position.assign(rest == end ? rest : rest + 1, end);
}

void FailureDetector::heard(Time now, const std::vector<std::string>& beats, const std::string& verdict) {
  advance(now);
  const Time awake = awake_ - heard_awake_;
  note_gap(now_ - heard_real_, awake);
  heard_real_ = now_;
  heard_awake_ = awake_;
  written_ = writing_;
  for (int rank = 0; rank < size_; ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    const std::string& beat = beats[static_cast<std::size_t>(rank)];
    if (beat != peer.beat)
      read_beat(peer, beat);
    else
      peer.silence += std::min(awake, rules_.dead_after * 3 / 4);  // one late answer proves nothing
  }
  if (verdict == kFinished && phase_ != LEFT) {
    phase_ = LEFT;
    left_at_ = awake_;
  }
  if (phase_ == LEFT) return wait_for_others();
  if (verdict != kNone && !in_force_) {
    in_force_ = true;
    phase_ = TOLD;
    decide(decode(verdict));
  }
  if (verdict_ && !in_force_) proposal_ = verdict_;  // the store answers again after all
  if (verdict_ || proposal_) return;
  accuse();
  if (!proposal_) accuse_itself(awake);
  // Not before the store has said so, else one rank could finish while another accuses.
  all_bye_ = phase_ == BYE && all_others([](const Peer& peer) { return peer.phase == BYE || peer.phase == LEFT; });
}

template <class Property>
bool FailureDetector::all_others(Property&& holds) const {
  for (int rank = 0; rank < size_; ++rank)
    if (rank != rank_ && !holds(peers_[static_cast<std::size_t>(rank)])) return false;
  return true;
}

void FailureDetector::accuse() {
  int lost = rank_;
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || peer.phase != WORKING || !is_lost(peer)) continue;
    if (lost == rank_ || peer.silence > peers_[static_cast<std::size_t>(lost)].silence) lost = rank;
  }
  if (lost == rank_) return;
  const Peer& peer = peers_[static_cast<std::size_t>(lost)];
  if (peer.news < kEnoughNews)
    proposal_ = blame_gap();
  else
    proposal_ = Verdict{lost, join("rank ", lost, " gave no heartbeat for ", seconds_to_tenths(peer.silence),
                                   " (killed, stopped or cut off)", position_of(lost))};
}

Verdict FailureDetector::blame_gap() const {
  if (gap_.rank == rank_) return blame_suspension(gap_.length);
  return {gap_.rank,
          join(name_of(gap_.rank), " did not answer for ", seconds_to_tenths(gap_.length), position_of(gap_.rank))};
}

Verdict FailureDetector::blame_suspension(Time length) const {
  return {rank_,
          join("rank ", rank_, " was suspended for ", seconds_to_tenths(length), ", and the others ended without it")};
}

// The store is kept until all others have left too, or are silent.
void FailureDetector::wait_for_others() {
  if (written_ != LEFT) return;
  left_ = !serves() || awake_ - left_at_ > 2 * rules_.dead_after ||
          all_others([&](const Peer& peer) { return peer.phase == LEFT || is_lost(peer); });
}

void FailureDetector::decide(const Verdict& verdict) {
  if (verdict_) return;
  verdict_ = verdict;
  verdict_at_ = awake_;
}

void FailureDetector::store_failed(Time now, const std::string& why) {
  advance(now);
  store_failed_ = true;
  if (phase_ == LEFT) left_ = true;  // it ended because all had left
  if (left_ || verdict_) return;
  if (proposal_ && proposal_->rank == rank_)
    decide(*proposal_);
  else if (suspended_ >= long_gap() && awake_ - suspended_until_ < rules_.dead_after)
    decide(blame_suspension(suspended_));
  else
    decide({store_rank_, join(name_of(store_rank_), " is gone (", why, ")", position_of(store_rank_))});
}

FailureDetector::Time FailureDetector::pause() const {
  const bool hurry = phase_ != WORKING || verdict_ || (proposal_ && !in_force_);
  return hurry ? std::min(rules_.heartbeat, Time(10) * (1 + hurried_ / 8)) : rules_.heartbeat;
}

bool FailureDetector::needs_turns() const { return !store_failed_ && !left_; }

// A rank that has finished takes part in no collective any more. It may have ended this one already: not all operations
// wait for all ranks.
void FailureDetector::accuse_itself(Time waited) {
  if (calls_ % 2 == 0) return;
  for (int rank = 0; rank < size_; ++rank) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || peer.phase != BYE || peer.collectives > calls_ / 2) continue;
    peer.finished += waited;
    if (peer.finished <= rules_.dead_after + rules_.farewell) continue;  // it may fail yet
    proposal_ = Verdict{
        rank_, join("rank ", rank_, " waits for rank ", rank, ", which has finished", kOfAll, position_of(rank_))};
    return;
  }
}

FailureDetector::Action FailureDetector::tick(Time now) {
  advance(now);
  const Time unanswered = awake_ - heard_awake_;
  if (!verdict_ && needs_turns() && unanswered > rules_.dead_after) {
    if (phase_ == LEFT)
      left_ = true;
    else
      decide({store_rank_, join(name_of(store_rank_), " has not answered for ", seconds_to_tenths(unanswered),
                                position_of(store_rank_))});
  }
  if (!verdict_) return Action::NONE;
  if (!aborted_) {
    aborted_ = true;
    return Action::ABORT;
  }
  const bool late = awake_ - verdict_at_ > (taken_ ? rules_.grace : rules_.unwind);
  return rules_.may_exit && late && may_end() ? Action::EXIT : Action::NONE;
}

bool FailureDetector::may_end() const {
  if (store_failed_ || !in_force_) return true;
  const Time since = awake_ - verdict_at_;
  if (!serves()) return written_ == TOLD || since > 2 * rules_.heartbeat;
  if (since > rules_.dead_after + 2 * rules_.heartbeat) return true;
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    const bool needs_store = peer.phase != TOLD && peer.phase != LEFT && !is_lost(peer);
    if (rank != rank_ && rank != verdict_->rank && needs_store) return false;
  }
  return true;
}

void FailureDetector::fail(const std::string& why, const std::string& position) {
  taken_ = true;
  if (verdict_ || proposal_) return;
  const bool says_where = position.empty() || why.find(position) != std::string::npos;
  proposal_ = Verdict{rank_, join("rank ", rank_, " failed: ", why, says_where ? "" : kPosition + position)};
}

void FailureDetector::timed_out() {
  const std::string& mine = peers_[static_cast<std::size_t>(rank_)].position;
  int elsewhere = -1;
  for (int rank = 0; rank < size_; ++rank) {
    if (peers_[static_cast<std::size_t>(rank)].position == mine) continue;
    if (elsewhere >= 0) return;
    elsewhere = rank;
  }
  if (elsewhere < 0 || verdict_ || proposal_) return;
  proposal_ = Verdict{elsewhere, join("rank ", elsewhere, " hangs or is late: it took no part in a collective",
                                      position_of(elsewhere), ", and the others waited at ", mine)};
}

void FailureDetector::leave() {
  if (phase_ == WORKING && !taken_) phase_ = BYE;
}

std::string FailureDetector::positions() const {
  std::string text;
  for (int rank = 0; rank < size_; ++rank) {
    const Peer& peer = peers_[static_cast<std::size_t>(rank)];
    const std::string position = peer.position.empty() ? "unknown" : peer.position;
    text += join(rank > 0 ? "; " : "", "rank ", rank, ": ", peer.phase == BYE ? "has called shutdown()" : position);
  }
  return text;
}

}  // namespace composer::dist

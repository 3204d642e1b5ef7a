#include "composer/dist/failure_detector.h"

#include <algorithm>
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
      store_rank_(store_rank),
      clock_(rules.dead_after / 4, now),
      store_(std::max(rules.dead_after - 2 * rules.heartbeat, rules.dead_after / 2), clock_.now()),
      ranks_(size, rank, rules.dead_after),
      wait_(size) {}

std::string FailureDetector::name_of(int rank) const {
  if (rank < 0) return "the launcher's store";
  return join("rank ", rank, rank == store_rank_ ? ", which serves the store," : "");
}

std::string FailureDetector::position_of(int rank) const {
  if (rank < 0 || ranks_[rank].position.empty()) return {};
  return kPosition + ranks_[rank].position;
}

FailureDetector::Turn FailureDetector::turn(std::string_view position, std::uint64_t calls) {
  wait_.at(calls);
  if (own_.phase() != RankPhase::WORKING || !judged_.is_open()) ++hurried_;
  Turn turn{own_.next(wait_.ended(), position), std::nullopt};
  if (judged_.in_force() || own_.phase() == RankPhase::LEFT) return turn;
  if (judged_.proposal())
    turn.proposal = encode(*judged_.proposal());
  else if (all_bye_)
    turn.proposal = kFinished;
  return turn;
}

void FailureDetector::heard(Time now, const std::vector<std::string>& beats, const std::string& verdict) {
  clock_.advance(now);
  const AwakeClock::Moment waited = store_.answered(clock_.now());
  if (store_.is_long(waited.real)) ranks_.note_gap();
  own_.stored();
  ranks_.read(beats, waited.awake);
  if (verdict == kFinished && own_.phase() != RankPhase::LEFT) {
    own_.enter(RankPhase::LEFT);
    left_at_ = clock_.awake();
  }
  if (own_.phase() == RankPhase::LEFT) return wait_for_others();
  if (verdict != kNone && !judged_.in_force()) {
    own_.enter(RankPhase::TOLD);
    judged_.enforce(decode(verdict), clock_.awake());
  }
  judged_.propose_own_verdict();
  if (!judged_.is_open()) return;
  accuse();
  accuse_itself(waited.awake);
  // This rank must not finish before the store has its BYE: otherwise one rank could finish while another accuses.
  all_bye_ = own_.phase() == RankPhase::BYE && ranks_.all_others([this](int rank) {
    return ranks_[rank].phase == RankPhase::BYE || ranks_[rank].phase == RankPhase::LEFT;
  });
}

void FailureDetector::accuse() {
  const int lost = ranks_.longest_lost();
  if (lost < 0) return;
  if (!ranks_.has_enough_news(lost)) return judged_.propose(blame_gap());
  judged_.propose({lost, join("rank ", lost, " gave no heartbeat for ", seconds_to_tenths(ranks_[lost].silence),
                              " (killed, stopped or cut off)", position_of(lost))});
}

Verdict FailureDetector::blame_gap() const {
  const auto& [real, awake] = store_.gap();
  const bool was_suspended = real - awake > awake;
  if (was_suspended || serves()) return blame_suspension(real);
  return {store_rank_,
          join(name_of(store_rank_), " did not answer for ", seconds_to_tenths(real), position_of(store_rank_))};
}

Verdict FailureDetector::blame_suspension(Time length) const {
  return {rank_,
          join("rank ", rank_, " was suspended for ", seconds_to_tenths(length), ", and the others ended without it")};
}

// Proposes a verdict against this rank if it waits too long for a rank that has finished. The finished rank may still
// fail, so the limit includes the farewell time.
void FailureDetector::accuse_itself(Time waited) {
  if (!judged_.is_open()) return;
  const int finished = wait_.add(waited, ranks_, rules_.dead_after + rules_.farewell);
  if (finished < 0) return;
  judged_.propose(
      {rank_, join("rank ", rank_, " waits for rank ", finished, ", which has finished", kOfAll, position_of(rank_))});
}

// The rank that serves the store leaves last: it waits until all others have left or are silent.
void FailureDetector::wait_for_others() {
  if (!own_.is_stored(RankPhase::LEFT)) return;
  left_ = !serves() || clock_.awake() - left_at_ > 2 * rules_.dead_after ||
          ranks_.all_others([this](int rank) { return ranks_[rank].phase == RankPhase::LEFT || ranks_.is_lost(rank); });
}

void FailureDetector::store_failed(Time now, const std::string& why) {
  clock_.advance(now);
  store_.set_lost();
  if (own_.phase() == RankPhase::LEFT) left_ = true;  // the store ended because all had left
  if (left_ || verdict()) return;
  const std::optional<Time> suspended = clock_.suspended_within(rules_.dead_after);
  if (judged_.proposal() && judged_.proposal()->rank == rank_)
    decide(*judged_.proposal());
  else if (suspended && store_.is_long(*suspended))
    decide(blame_suspension(*suspended));
  else
    decide({store_rank_, join(name_of(store_rank_), " is gone (", why, ")", position_of(store_rank_))});
}

FailureDetector::Time FailureDetector::pause() const {
  const bool hurry = own_.phase() != RankPhase::WORKING || verdict() || (judged_.proposal() && !judged_.in_force());
  return hurry ? std::min(rules_.heartbeat, Time(10) * (1 + hurried_ / 8)) : rules_.heartbeat;
}

bool FailureDetector::needs_turns() const { return !store_.is_lost() && !left_; }

FailureDetector::Action FailureDetector::tick(Time now) {
  clock_.advance(now);
  const Time unanswered = store_.unanswered(clock_.now());
  if (!verdict() && needs_turns() && unanswered > rules_.dead_after) {
    if (own_.phase() == RankPhase::LEFT)
      left_ = true;
    else
      decide({store_rank_, join(name_of(store_rank_), " has not answered for ", seconds_to_tenths(unanswered),
                                position_of(store_rank_))});
  }
  if (!verdict()) return Action::NONE;
  if (judged_.act_once()) return Action::ABORT;
  const bool late = judged_.age(clock_.awake()) > (taken_ ? rules_.grace : rules_.unwind);
  return rules_.may_exit && late && may_end() ? Action::EXIT : Action::NONE;
}

bool FailureDetector::may_end() const {
  if (store_.is_lost() || !judged_.in_force()) return true;
  const Time since = judged_.age(clock_.awake());
  if (!serves()) return own_.is_stored(RankPhase::TOLD) || since > 2 * rules_.heartbeat;
  if (since > rules_.dead_after + 2 * rules_.heartbeat) return true;
  return ranks_.all_others([this](int rank) {
    const RankPhase phase = ranks_[rank].phase;
    const bool needs_store = phase != RankPhase::TOLD && phase != RankPhase::LEFT && !ranks_.is_lost(rank);
    return rank == verdict()->rank || !needs_store;
  });
}

void FailureDetector::fail(const std::string& why, const std::string& position) {
  taken_ = true;
  const bool says_where = position.empty() || why.find(position) != std::string::npos;
  judged_.propose({rank_, join("rank ", rank_, " failed: ", why, says_where ? "" : kPosition + position)});
}

void FailureDetector::timed_out() {
  const int elsewhere = ranks_.only_one_elsewhere();
  if (elsewhere < 0) return;
  judged_.propose({elsewhere, join("rank ", elsewhere, " hangs or is late: it took no part in a collective",
                                   position_of(elsewhere), ", and the others waited at ", ranks_[rank_].position)});
}

void FailureDetector::leave() {
  if (own_.phase() == RankPhase::WORKING && !taken_) own_.enter(RankPhase::BYE);
}

}  // namespace composer::dist

#include "composer/cli/launch_policy.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "composer/core/error.h"

namespace composer::cli {

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? join("signal ", number) : join("SIG", name);
}

std::string to_string(const Ending& ending) {
  if (ending.signal == 0) return join("exited with ", ending.code);
  return join("was killed by ", signal_name(ending.signal), ending.signal == SIGKILL ? " (out of memory?)" : "",
              ending.core_dumped ? " (core dumped)" : "");
}

EndPolicy::EndPolicy(int ranks, Time grace, Time blame_wait) : ranks_(ranks), grace_(grace), blame_wait_(blame_wait) {}

void EndPolicy::ended(const Ends& ends, Time now) {
  // If ranks seem to have ended at the same time, one that was killed is the cause of the others' errors.
  Ends sorted = ends;
  std::ranges::stable_sort(sorted, {}, [](const auto& end) { return end.second.signal == 0; });
  for (const auto& [rank, ending] : sorted) {
    endings_[rank] = ending;
    if (!ending.good()) take_failure(rank, ending, now);
  }
}

void EndPolicy::take_failure(int rank, const Ending& ending, Time now) {
  if (terminated_ || all_killed_ || failed_) return;  // the end is a consequence of the first failure
  const auto is_asked = [&](int signal) { return ending.status() == 128 + signal; };
  if (std::ranges::any_of(asked_, is_asked) || (!asked_.empty() && ending.code == kPeerLost)) {
    if (!kill_at_) kill_at_ = now + grace_;
  } else if (ending.code != kPeerLost) {
    failed_ = rank;
  } else if (!lost_a_peer_) {
    lost_a_peer_ = rank;
    blame_until_ = now + blame_wait_;
  }
}

void EndPolicy::asked_to_end(int signal) { asked_.push_back(signal); }

EndPolicy::Action EndPolicy::next(Time now) {
  if (all_killed_) return Action::WAIT;
  if (kill_at_ && now >= *kill_at_) {
    all_killed_ = true;
    for (int rank = 0; rank < ranks_; ++rank)
      if (!endings_.contains(rank)) killed_.push_back(rank);
    return Action::KILL;
  }
  const bool blamed = blame_until_ && now >= *blame_until_;
  if (terminated_ || (!failed_ && !blamed && !all_ended())) return Action::WAIT;
  terminated_ = true;
  // Processes started by the ranks may still be doing what a signal requested, such as writing a checkpoint.
  const bool busy_ending = !asked_.empty() && !failed_ && !blamed;
  if (!kill_at_) kill_at_ = now + grace_;
  return busy_ending ? Action::WAIT : Action::TERMINATE;
}

std::optional<EndPolicy::Time> EndPolicy::wake() const {
  if (all_killed_) return {};
  if (kill_at_ && blame_until_ && !terminated_) return std::min(*kill_at_, *blame_until_);
  return terminated_ || !blame_until_ ? kill_at_ : blame_until_;
}

std::optional<int> EndPolicy::culprit() const {
  if (failed_) return failed_;
  // The rank that the others have lost is the one that hangs.
  if (lost_a_peer_ && !killed_.empty()) return killed_.front();
  return lost_a_peer_;
}

int EndPolicy::exit_code() const {
  if (const std::optional<int> rank = culprit()) return endings_.at(*rank).status();
  const bool all_good = std::ranges::all_of(endings_, [](const auto& end) { return end.second.good(); });
  return all_good || asked_.empty() ? 0 : 128 + asked_.front();
}

}  // namespace composer::cli

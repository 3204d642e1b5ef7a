#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace composer::dist {

// Which rank is to blame for the end of all, and why. -1: none of the ranks.
struct Verdict {
  int rank = -1;
  std::string text;
};

// How a rank comes to its verdict. It proposes one to the store; the verdict in the store is in force. If the store
// does not answer, the rank decides for itself. Only the first proposal and the first verdict count.
class Judgement {
 public:
  using Time = std::chrono::milliseconds;

  bool is_open() const { return !verdict_ && !proposal_; }
  void propose(Verdict verdict) {
    if (is_open()) proposal_ = std::move(verdict);
  }
  void decide(Verdict verdict, Time now) {
    if (verdict_) return;
    verdict_ = std::move(verdict);
    decided_at_ = now;
  }
  void enforce(Verdict verdict, Time now) {  // the verdict comes from the store
    in_force_ = true;
    decide(std::move(verdict), now);
  }
  // Called when the store answers again: proposes to it what this rank has decided without it.
  void propose_own_verdict() {
    if (verdict_ && !in_force_) proposal_ = verdict_;
  }

  const std::optional<Verdict>& proposal() const { return proposal_; }
  const std::optional<Verdict>& verdict() const { return verdict_; }
  bool in_force() const { return in_force_; }
  Time age(Time now) const { return now - decided_at_; }  // of the verdict
  // Whether to act on the verdict: true at the first call only.
  bool act_once() { return !std::exchange(acted_, true); }

 private:
  std::optional<Verdict> proposal_;
  std::optional<Verdict> verdict_;
  bool in_force_ = false;
  bool acted_ = false;
  Time decided_at_{0};
};

}  // namespace composer::dist

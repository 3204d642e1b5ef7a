#include "tests/dist/training.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "composer/core/error.h"
#include "composer/trainer/votes.h"

namespace composer::dist::simulation {
namespace {

constexpr std::int64_t kEvalBatches = 2;

cli::EndPolicy::Time seconds(Time time) { return time; }

}  // namespace

Training::Training(const Attempt& attempt, const TrainingRules& training, const DetectorRules& rules, std::int64_t from)
    : Simulation(attempt.schedule, rules),
      training_(training),
      ranks_(static_cast<std::size_t>(attempt.schedule.ranks)),
      policy_(attempt.schedule.ranks, seconds(training.grace)) {
  result_.saved = from;
  for (Rank& rank : ranks_) rank.batch = from;
  for (const Request& request : attempt.requests)
    act(request.rank, request.at, [this, request] {
      Rank& rank = ranks_[static_cast<std::size_t>(request.rank)];
      const std::string why = join("a wish of rank ", request.rank);
      if (request.kind == Request::SIGNAL)
        rank.signal = request.signal;
      else
        rank.stop.ask(why, request.kind == Request::FINISH ? Stop::FINISHED : Stop::PAUSED);
    });
  if (attempt.asked_to_end)
    at(*attempt.asked_to_end, [this] {
      result_.interrupted = true;
      policy_.asked_to_end(SIGTERM);
      for (Rank& rank : ranks_) rank.signal = SIGTERM;
    });
}

Training::Result Training::result(Time limit) {
  result_.ends = run(limit);
  result_.over = policy_.all_ended();
  if (!result_.over) return result_;
  result_.culprit = policy_.culprit();
  result_.code = policy_.exit_code();
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (result_.ends[i].how != End::FINISHED) continue;
    if (result_.outcome.empty()) result_.outcome = ranks_[i].outcome;
    if (ranks_[i].outcome != result_.outcome) disagree(ranks_[i].outcome + " on one rank, but " + result_.outcome);
  }
  return result_;
}

void Training::disagree(const std::string& what) {
  if (result_.disagreement.empty()) result_.disagreement = what;
}

void Training::work(int rank) {
  act(rank, now() + draw(Time(2000)), [this, rank] { head(rank); });
}

void Training::compute(int rank, std::function<void()> then) {
  const bool slow = draw(Time(100)).count() <= training_.slow;
  process_of(rank).is_busy = true;
  act(rank, now() + draw(slow ? 100 * training_.computing : training_.computing), std::move(then));
}

void Training::meet(int rank, const std::string& what, std::vector<std::int64_t> values, const std::string& text,
                    Then then) {
  if (!can_meet(rank) || process_of(rank).cut) return;
  const std::size_t number = ranks_[static_cast<std::size_t>(rank)].meetings++;
  if (number == meetings_.size()) {
    meetings_.push_back(std::make_shared<Meeting>());
    meetings_.back()->what = what;
  }
  const std::shared_ptr<Meeting> meeting = meetings_[number];
  if (meeting->what != what) return disagree(join("rank ", rank, " is at ", what, ", but others at ", meeting->what));
  meeting->largest.resize(values.size()), meeting->sum.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    meeting->largest[i] = std::max(meeting->largest[i], values[i]);
    meeting->sum[i] += values[i];
  }
  if (!text.empty()) meeting->text = text;
  meeting->waiting.emplace_back(rank, [this, rank, meeting, then = std::move(then)] {
    if (!process_of(rank).collective_failed && !process_of(rank).detector->verdict()) then(*meeting);
  });
  if (meeting->waiting.size() < ranks_.size()) return;
  for (auto& [other, go_on] : meeting->waiting) act(other, now() + draw(schedule().slowest), go_on);
}

// As Stopping::decide_with_ranks() does.
void Training::head(int rank) {
  const Rank& me = ranks_[static_cast<std::size_t>(rank)];
  const Wish wish{.stop = me.stop.asked(), .kind = me.stop.kind(), .signal = me.signal};
  const int size = schedule().ranks;
  const Vote vote = vote_of(wish, rank, size);
  meet(rank, join("step ", me.batch), {vote.begin(), vote.end()}, "", [this, rank, wish, size](const Meeting& votes) {
    const Decision decision = decide({votes.largest[0], votes.largest[1], votes.largest[2]}, size);
    if (decision.asker < 0) return step(rank, decision, "");
    const Stop& stop = ranks_[static_cast<std::size_t>(rank)].stop;
    const std::string why = decision.asker == rank ? stop.why() : "";
    meet(rank, join("why ", decision.asker), {}, why, [this, rank, wish, decision, stop](const Meeting& reason) {
      if (!wish.stop || wish.kind != decision.kind) stop.ask(reason.text, decision.kind);
      step(rank, decision, reason.text);
    });
  });
}

void Training::note(int rank, int signal) {
  Rank& me = ranks_[static_cast<std::size_t>(rank)];
  if (me.ending.note(signal)) me.stop.ask("a signal");
}

void Training::step(int rank, const Decision& decision, const std::string& why) {
  Rank& me = ranks_[static_cast<std::size_t>(rank)];
  note(rank, decision.signal);
  const bool asked = decision.asker >= 0 || decision.signal != 0;
  if (me.ending.decide(me.batch >= training_.batches, asked)) {
    me.outcome = join("ended after batch ", me.batch, asked ? ", asked to" : ", at the limit", ", signal ",
                      me.ending.signal(), ", kind ", static_cast<int>(decision.kind), ' ', why);
    return finish(rank);
  }
  compute(rank, [this, rank] {
    const std::int64_t batch = ranks_[static_cast<std::size_t>(rank)].batch;
    meet(rank, join("gradients ", batch), {}, "", [this, rank](const Meeting&) {
      const std::int64_t trained = ++ranks_[static_cast<std::size_t>(rank)].batch;
      const bool due = training_.eval_every > 0 && trained % training_.eval_every == 0;
      due ? evaluate(rank, 0) : checkpoint(rank);
    });
  });
}

void Training::evaluate(int rank, std::int64_t batch) {
  if (batch == kEvalBatches) return checkpoint(rank);
  compute(rank, [this, rank, batch] {
    const Rank& me = ranks_[static_cast<std::size_t>(rank)];
    const SignalVote vote = vote_of(me.signal);
    meet(rank, join("evaluation ", me.batch, ' ', batch), {vote.begin(), vote.end()}, "",
         [this, rank, batch](const Meeting& votes) {
           note(rank, signal_of({votes.sum[0], votes.sum[1]}));
           const bool interrupted = ranks_[static_cast<std::size_t>(rank)].ending.interrupted();
           interrupted ? checkpoint(rank) : evaluate(rank, batch + 1);
         });
  });
}

void Training::checkpoint(int rank) {
  const std::int64_t batch = ranks_[static_cast<std::size_t>(rank)].batch;
  if (rank == 0 && batch % training_.save_every == 0) result_.saved = batch;
  head(rank);
}

void Training::finish(int rank) {
  compute(rank, [this, rank] {
    meet(rank, "the end", {}, "", [this, rank](const Meeting&) {
      Rank& me = ranks_[static_cast<std::size_t>(rank)];
      if (rank == 0) result_.saved = me.batch;
      leave(rank);
    });
  });
}

// The launcher learns of it a little later.
void Training::has_ended(int rank) {
  cli::Ending ending;
  const Process& process = process_of(rank);
  const int signal = ranks_[static_cast<std::size_t>(rank)].ending.signal();
  if (process.end.how == End::DIED)
    ending.signal = SIGKILL;
  else if (process.end.how == End::FINISHED)
    ending.code = signal == 0 ? 0 : 128 + signal;
  else
    ending.code = process.failed ? 1 : cli::kPeerLost;
  at(now() + draw(Time(20)), [this, rank, ending] {
    policy_.ended({{rank, ending}}, seconds(now()));
    result_.at = now();
    launch();
  });
}

void Training::launch() {
  const auto action = policy_.next(seconds(now()));
  for (int rank = 0; rank < schedule().ranks && action != cli::EndPolicy::Action::WAIT; ++rank) {
    if (!process_of(rank).alive()) continue;
    if (action == cli::EndPolicy::Action::KILL) {
      end(rank, End::DIED);
    } else {
      ranks_[static_cast<std::size_t>(rank)].signal = SIGTERM;
      go_on(rank);
    }
  }
  if (const auto wake = policy_.wake(); wake && !policy_.all_ended()) {
    const Time later = std::max(std::chrono::ceil<Time>(*wake), now() + Time(1));
    at(later, [this] { launch(); });
  }
}

}  // namespace composer::dist::simulation

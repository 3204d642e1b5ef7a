#include "composer/cli/launch_run.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <optional>
#include <poll.h>
#include <unistd.h>

#include "composer/cli/launch_policy.h"
#include "composer/cli/launch_ranks.h"
#include "composer/core/error.h"

namespace composer::cli {
namespace {

using Time = EndPolicy::Time;

Time now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// Lists ranks as "ranks 1, 2 and 5".
std::string names_of_ranks(const std::vector<int>& ranks, int first) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += join(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", first + ranks[i]);
  return text;
}

class Run {
 public:
  Run(const LaunchOptions& options, const Program& program, OutputMode mode, SignalQueue& signals, Sink& out, Sink& err)
      : options_(options),
        signals_(signals),
        out_(out),
        err_(err),
        streams_(mode, options.log_folder, options.first_rank(), out, err),
        ranks_(program, signals),
        policy_(static_cast<int>(options.ranks), Time(options.grace)) {}

  void start(int restart_count);
  RunResult watch();

 private:
  bool is_over();
  void pass_on(int number);
  void act();
  std::vector<int> running() const;
  void report_culprit(int rank);
  void report_killed();
  void wait();
  void say(const std::string& text) { err_.pending() += "composer: " + text + '\n'; }

  const LaunchOptions& options_;
  SignalQueue& signals_;
  Sink &out_, &err_;
  Streams streams_;
  Ranks ranks_;
  EndPolicy policy_;
  std::map<int, Time> passed_on_;  // signals, and when they were passed on
  std::optional<Time> killed_at_;
  bool asked_to_end_ = false, reported_ = false;
};

void Run::start(int restart_count) {
  std::optional<MasterSocket> master;
  auto port = static_cast<std::uint16_t>(options_.master_port);
  if (options_.node == 0) {
    master.emplace(port, !options_.master_addr.empty());
    port = master->port();
  }
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    const bool first = options_.first_rank() + rank == 0;
    const int kept = first ? master->descriptor() : -1;
    const auto [output, errors] = streams_.open();
    ranks_.start({.environment = rank_environment(options_, rank, restart_count, port, kept),
                  .input = first ? -1 : nothing,
                  .output = output,
                  .errors = errors,
                  .kept = kept});
    if (first) master->close();  // so that connections are refused once rank 0 is gone
  }
  streams_.close_opened();
  ::close(nothing);
}

RunResult Run::watch() {
  for (;;) {
    for (const int number : signals_.take()) pass_on(number);
    const Ends ends = ranks_.reap();
    streams_.read_available();
    if (!ends.empty()) policy_.ended(ends, now());
    if (ranks_.take_stopped()) pass_on(SIGTSTP);
    act();
    if (is_over()) break;
    wait();
  }
  ranks_.kill_all();
  streams_.finish();
  if (const auto rank = policy_.culprit(); rank && !reported_) report_culprit(*rank);
  return {policy_.exit_code(), asked_to_end_};
}

// The remaining output belongs to the run, unless it is not read and a signal requests the end.
bool Run::is_over() {
  constexpr Time kUnkillable(10);
  if (killed_at_ && now() - *killed_at_ > kUnkillable) {
    if (!policy_.all_ended()) say("SIGKILL does not end " + names_of_ranks(running(), options_.first_rank()));
    Ends ends;
    for (const int rank : running()) ends.emplace_back(rank, Ending{.signal = SIGKILL});
    policy_.ended(ends, now());
    return true;
  }
  return policy_.all_ended() && ranks_.all_gone() && (asked_to_end_ || !streams_.waits_for_reader());
}

void Run::pass_on(int number) {
  if (number == SIGCHLD) return;
  // Some senders signal this process and then its process group.
  constexpr Time kSameSignal(0.5);
  const auto [last, is_first] = passed_on_.try_emplace(number, now());
  if (!is_first && now() - last->second < kSameSignal) return;
  last->second = now();
  ranks_.signal(number);
  if (number == SIGTSTP) ::raise(SIGSTOP);  // until SIGCONT, which is also passed on
  if (number != SIGINT && number != SIGTERM && number != SIGHUP) return;
  ranks_.signal(SIGCONT);  // a stopped rank could not end
  asked_to_end_ = true;
  policy_.asked_to_end(number);
}

void Run::act() {
  switch (policy_.next(now())) {
    case EndPolicy::Action::WAIT:
      return;
    case EndPolicy::Action::TERMINATE:
      if (const auto rank = policy_.culprit()) report_culprit(*rank);
      // Programs treat a second SIGTERM as a request to end at once.
      if (!passed_on_.contains(SIGTERM)) ranks_.signal(SIGTERM);
      ranks_.signal(SIGCONT);
      return;
    case EndPolicy::Action::KILL:
      report_killed();
      ranks_.signal(SIGKILL);
      killed_at_ = now();
  }
}

std::vector<int> Run::running() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < options_.ranks; ++rank)
    if (!policy_.endings().contains(rank)) ranks.push_back(rank);
  return ranks;
}

void Run::report_culprit(int rank) {
  reported_ = true;
  const Ending& ending = policy_.endings().at(rank);
  const int name = options_.first_rank() + rank;
  const std::string lines = streams_.unseen_lines(rank), file = streams_.file_of(rank);
  std::string text = join("rank ", name, ' ', to_string(ending));
  if (ending.code == kPeerLost)
    text += options_.nodes > 1 ? ": it lost a rank, perhaps of another node" : ": it lost a rank";
  if (!policy_.all_ended())
    text += ending.code == kPeerLost
                ? "; still running and being ended: " + names_of_ranks(running(), options_.first_rank())
                : "; the other ranks are being ended";
  if (!file.empty()) text += join(" (see ", file, ')');
  if (!lines.empty()) text += ". Its last lines:";
  say(text);
  err_.pending() += lines;
}

void Run::report_killed() {
  if (!policy_.killed().empty())
    say(join(names_of_ranks(policy_.killed(), options_.first_rank()), " did not end within ", options_.grace,
             " s and will be killed"));
}

void Run::wait() {
  std::vector<pollfd> polled = {{signals_.descriptor(), POLLIN, 0}};
  streams_.add_to(polled);
  for (Sink* sink : {&out_, &err_})
    if (sink->is_closed())
      sink->drop();
    else if (sink->has_pending())
      polled.push_back({sink->descriptor(), POLLOUT, 0});
  // Between checks for the end of processes that the ranks have started, which may come without a signal.
  constexpr Time kLook(1);
  std::optional<Time> left;
  if (const auto wake = policy_.wake()) left = std::max(Time(0), *wake - now());
  if (policy_.all_ended() || killed_at_) left = std::min(left.value_or(kLook), kLook);
  const int milliseconds = left ? static_cast<int>(std::min(left->count(), 1e6) * 1000) + 1 : -1;
  ::poll(polled.data(), polled.size(), milliseconds);
  for (Sink* sink : {&out_, &err_})
    for (const pollfd& one : polled)
      if (one.fd == sink->descriptor() && (one.revents & ~POLLIN) != 0) sink->write_some();
}

}  // namespace

RunResult run_ranks(const LaunchOptions& options, const Program& program, OutputMode mode, int restart_count,
                    SignalQueue& signals, Sink& out, Sink& err) {
  Run run(options, program, mode, signals, out, err);
  run.start(restart_count);
  return run.watch();
}

}  // namespace composer::cli

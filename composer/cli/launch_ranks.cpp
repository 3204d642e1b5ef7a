#include "composer/cli/launch_ranks.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/wait.h>

#include "composer/util/letters.h"
#include "composer/util/text.h"

namespace composer::cli {
namespace {

// Kills the groups whose numbers it has read when the pipe closes because the other process is gone.
[[noreturn]] void guard(int pipe, pid_t* groups, std::size_t most) {
  ::setsid();
  ::prctl(PR_SET_NAME, "composer-guard");
  ::dup2(pipe, STDIN_FILENO);
  ::close_range(1, ~0U, 0);
  std::size_t count = 0;
  pid_t group = 0;
  while (::read(STDIN_FILENO, &group, sizeof group) == sizeof group) {
    if (group > 0 && count < most) groups[count++] = group;
    for (std::size_t i = 0; i < count; ++i)
      if (groups[i] == -group) groups[i] = groups[--count];
  }
  for (std::size_t i = 0; i < count; ++i) ::kill(-groups[i], SIGKILL);
  ::_exit(0);
}

struct Process {
  pid_t pid = 0, parent = 0;
};

// Parses /proc/PID/stat: "PID (NAME) STATE PARENT ...".
Process process_of(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  Process process{.pid = std::atoi(text.c_str())};
  char state = 0;
  util::InText(text.substr(name_end + 1)) >> state >> process.parent;
  return process;
}

std::vector<pid_t> descendants(pid_t except) {
  std::vector<Process> all;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored))
    if (util::is_digit(entry.path().filename().string().front())) all.push_back(process_of(entry.path()));
  std::vector<pid_t> found = {::getpid()};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const Process& process : all)
      if (process.parent == found[i] && process.pid != except) found.push_back(process.pid);
  found.erase(found.begin());
  return found;
}

int terminal() {
  for (const int descriptor : {STDIN_FILENO, STDERR_FILENO, STDOUT_FILENO})
    if (::tcgetpgrp(descriptor) > 0) return descriptor;
  return -1;
}

}  // namespace

Ranks::Ranks(Program program, const SignalQueue& signals) : program_(std::move(program)), mask_(signals.mask_before()) {
  // Processes that a rank leaves behind become children of this process, which is notified of their end and can kill
  // them.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  start_guard();
}

Ranks::~Ranks() {
  kill_all();
  take_terminal_back();
  ::close(guard_pipe_);
  if (guard_ > 0) ::waitpid(guard_, nullptr, 0);
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

void Ranks::start_guard() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw Error("launch: cannot make a pipe: ", error_text(errno));
  std::vector<pid_t> groups(4096);
  guard_ = ::fork();
  if (guard_ == 0) guard(ends[0], groups.data(), groups.size());
  const int error = errno;
  ::close(ends[0]);
  guard_pipe_ = ends[1];
  if (guard_ < 0) throw Error("launch: cannot start a process: ", error_text(error));
}

void Ranks::tell_guard(pid_t group) const {
  // Without a guard there is nothing to write to.
  [[maybe_unused]] const ssize_t told = ::write(guard_pipe_, &group, sizeof group);
}

void Ranks::start(const RankStart& start) { ranks_.push_back({start_process(program_, start, mask_, guard_pipe_)}); }

Ends Ranks::reap() {
  Ends ends;
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
    if (WIFSTOPPED(status)) {
      note_stop(pid, WSTOPSIG(status));
      continue;
    }
    if (pid == guard_) guard_ = -1;
    const auto rank = std::ranges::find(ranks_, pid, &Rank::pid);
    if (rank == ranks_.end() || rank->ended) continue;
    rank->ended = true;
    if (rank == ranks_.begin()) take_terminal_back();
    const bool exited = WIFEXITED(status);
    ends.emplace_back(static_cast<int>(rank - ranks_.begin()), Ending{.code = exited ? WEXITSTATUS(status) : 0,
                                                                      .signal = exited ? 0 : WTERMSIG(status),
                                                                      .core_dumped = !exited && WCOREDUMP(status)});
  }
  for (Rank& rank : ranks_)
    if (rank.ended && !rank.gone && ::kill(-rank.pid, 0) != 0) {
      rank.gone = true;
      tell_guard(-rank.pid);
    }
  return ends;
}

void Ranks::signal(int number) {
  for (const Rank& rank : ranks_)
    if (!rank.gone) ::kill(-rank.pid, number);
}

bool Ranks::all_gone() const { return std::ranges::all_of(ranks_, &Rank::gone); }

void Ranks::kill_all() {
  constexpr int kRounds = 200;  // one second, if a process cannot be killed
  signal(SIGKILL);
  for (int round = 0; round < kRounds; ++round) {
    reap();
    const std::vector<pid_t> left = descendants(guard_);
    if (left.empty()) return;
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// A process that reads a terminal from the background is stopped. If that is rank 0, it gets the terminal of this
// process. If this process is in the background itself, its job stops, like any program that reads.
void Ranks::note_stop(pid_t pid, int signal) {
  if (ranks_.empty() || pid != ranks_.front().pid) return;
  const int descriptor = terminal();
  if (descriptor < 0) return;
  const pid_t foreground = ::tcgetpgrp(descriptor);
  const bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
  if (wants_terminal && foreground == ::getpgrp()) {
    if (::tcsetpgrp(descriptor, pid) == 0) ::kill(-pid, SIGCONT);
  } else if (wants_terminal || (signal == SIGTSTP && foreground == pid)) {
    take_terminal_back();
    stopped_ = true;
  }
}

void Ranks::take_terminal_back() const {
  const int descriptor = terminal();
  if (descriptor >= 0 && !ranks_.empty() && ::tcgetpgrp(descriptor) == ranks_.front().pid)
    ::tcsetpgrp(descriptor, ::getpgrp());
}

}  // namespace composer::cli

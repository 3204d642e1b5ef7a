#pragma once
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "composer/cli/launch_policy.h"
#include "composer/cli/launch_signals.h"
#include "composer/cli/launch_start.h"

namespace composer::cli {

// The processes of one start. Each rank leads a process group, so a signal to the group reaches all processes that the
// rank has started, and a signal of the terminal reaches only this process. When this process dies, the kernel kills
// the ranks, and a guard process kills the rest of their groups. Ranks start with SIGPIPE ignored, so that a peer or
// reader that is gone is an error of the write. Only one instance at a time, in a process without other children.
class Ranks {
 public:
  Ranks(Program program, const SignalQueue& signals);
  ~Ranks();  // kills and reaps everything
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void start(const RankStart& start);  // starts the next rank. Throws StartError
  Ends reap();                         // ranks that ended since the last call
  void signal(int number);             // to the groups of all ranks
  bool all_gone() const;               // as of the last reap(): no rank is left, nor any process that it has started
  void kill_all();                     // also kills processes that have left the groups of their ranks
  // Whether the job of this process should stop: rank 0 was stopped in the foreground (Ctrl-Z), or reads the terminal
  // from the background.
  bool take_stopped() { return std::exchange(stopped_, false); }

 private:
  struct Rank {
    pid_t pid;
    bool ended = false, gone = false;
  };
  void start_guard();
  void tell_guard(pid_t group) const;
  void note_stop(pid_t pid, int signal);
  void take_terminal_back() const;

  Program program_;
  sigset_t mask_;
  std::vector<Rank> ranks_;
  pid_t guard_ = -1;
  int guard_pipe_ = -1;
  bool stopped_ = false;
};

}  // namespace composer::cli

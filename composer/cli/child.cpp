#include "composer/cli/child.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <sys/wait.h>

#include "composer/core/error.h"

namespace composer::cli {
namespace {

constexpr Duration kPause(0.001);  // between two checks of a child

std::atomic<bool> interrupted = false;  // a signal handler can access only a global

void note(int) { interrupted = true; }

void check_code(int code, const char* what, const std::string& name) {
  if (code != 0) throw Error(what, " ", name, ": ", std::generic_category().message(code));
}

}  // namespace

struct SignalWatch::Before {
  struct sigaction interrupt {
  }, terminate{};
};

SignalWatch::SignalWatch() : before_(new Before) {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = note;
  sigaction(SIGINT, &action, &before_->interrupt);
  sigaction(SIGTERM, &action, &before_->terminate);
}

SignalWatch::~SignalWatch() {
  sigaction(SIGINT, &before_->interrupt, nullptr);
  sigaction(SIGTERM, &before_->terminate, nullptr);
  delete before_;
}

bool SignalWatch::pending() { return interrupted; }

Child::Child(const std::vector<std::string>& command, const std::filesystem::path& folder,
             const std::filesystem::path& output) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int code = posix_spawnp(&pid_, command.front().c_str(), &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  check_code(code, "could not start", command.front());
}

Child::~Child() {
  ::kill(-pid_, SIGKILL);  // also processes that it has started and left behind
  if (!ended_) ::waitpid(pid_, &status_, 0);
}

bool Child::ended() {
  if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

bool Child::wait(Duration at_most) {
  const auto start = std::chrono::steady_clock::now();
  while (!ended()) {
    if (interrupted) throw Interrupted();
    const Duration left = at_most - (std::chrono::steady_clock::now() - start);
    if (left.count() <= 0) return false;
    std::this_thread::sleep_for(std::min(left, kPause));
  }
  return true;
}

void Child::signal(int number) {
  if (!ended_) ::kill(-pid_, number);
}

std::string Child::ending() const {
  if (WIFEXITED(status_)) return join("exit code ", WEXITSTATUS(status_));
  return join("signal ", WTERMSIG(status_), " (", strsignal(WTERMSIG(status_)), ")");
}

}  // namespace composer::cli

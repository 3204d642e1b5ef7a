#pragma once
// The program `composer` as a process of its own, for tests of what it does with other processes.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <pty.h>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <sys/wait.h>

#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/places.h"

namespace composer::test {

// With the names of its files as text, for command lines.
class LaunchFolder : public Folder {
 public:
  std::string operator/(const std::string& name) const { return path() / name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path() / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

inline bool within(double seconds, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

inline bool runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text[name_end + 2] != 'Z';
}

// A running command, in a process group of its own and with only the three standard descriptors.
class Launched {
 public:
  explicit Launched(const std::vector<std::string>& command, bool terminal = false) {
    const std::string out = folder_ / "out", err = folder_ / "err";
    pid_ = terminal ? ::forkpty(&terminal_, nullptr, nullptr, nullptr) : ::fork();
    if (pid_ == 0) become(command, terminal, out, err);
  }
  ~Launched() {
    if (terminal_ >= 0) ::close(terminal_);
    if (!ended_) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  // Its exit code as a shell reports it, or -1 if it does not end in time.
  int code(double seconds = 60) {
    const bool in_time = within(seconds, [&] {
      read_terminal();
      return ended_ = ended_ || ::waitpid(pid_, &status_, WNOHANG) == pid_;
    });
    read_terminal();
    if (!in_time) return -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  void signal(int number) const { ::kill(pid_, number); }
  void type(const std::string& text) const { CHECK(::write(terminal_, text.data(), text.size()) > 0); }
  std::string out() const { return folder_.read("out"); }
  std::string err() const { return folder_.read("err"); }
  std::string screen() {
    read_terminal();
    return screen_;
  }
  pid_t pid() const { return pid_; }
  const LaunchFolder& folder() const { return folder_; }

 private:
  [[noreturn]] static void become(const std::vector<std::string>& command, bool terminal, const std::string& out,
                                  const std::string& err) {
    if (!terminal) {
      ::setpgid(0, 0);
      ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
      ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
    }
    ::close_range(3, ~0U, 0);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(number, SIG_DFL);
    std::vector<char*> arguments;
    for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments.front(), arguments.data());
    ::_exit(99);
  }
  void read_terminal() {
    if (terminal_ < 0) return;
    ::fcntl(terminal_, F_SETFL, O_NONBLOCK);
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = ::read(terminal_, buffer.data(), buffer.size())) > 0;)
      screen_.append(buffer.data(), static_cast<std::size_t>(got));
  }

  LaunchFolder folder_;
  pid_t pid_ = -1;
  int status_ = 0, terminal_ = -1;
  bool ended_ = false;
  std::string screen_;
};

inline std::string composer_program() { return beside_this_program("composer"); }

// `composer launch OPTIONS -- sh -c SCRIPT`
inline std::vector<std::string> launch_command(std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(), {composer_program(), "launch"});
  options.insert(options.end(), {"--", "sh", "-c", script});
  return options;
}

// Part of a script: waits until the file has content.
inline std::string until_written(const std::string& file) { return "until [ -s " + file + " ]; do sleep 0.01; done"; }

struct LaunchResult {
  int code = 0;
  std::string out, err;
};

inline LaunchResult launch(const std::vector<std::string>& options, const std::string& script) {
  Launched launched(launch_command(options, script));
  const int code = launched.code();
  return {code, launched.out(), launched.err()};
}

// Without a script: the command line as it is.
inline LaunchResult composer_launch(std::vector<std::string> options) {
  options.insert(options.begin(), {composer_program(), "launch"});
  Launched launched(options);
  const int code = launched.code();
  return {code, launched.out(), launched.err()};
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::size_t count(const std::string& text, const std::string& part) {
  std::size_t times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline pid_t number_in(const std::string& file) {
  pid_t number = 0;
  std::ifstream(file) >> number;
  return number;
}

// Waits until the file contains a number, which a script has written with a line end.
inline pid_t wait_for_number(const std::string& file) {
  CHECK(within(60, [&] { return number_in(file) > 0; }));
  return number_in(file);
}

}  // namespace composer::test

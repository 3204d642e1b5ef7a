#pragma once
#include <chrono>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace composer::cli {

using Duration = std::chrono::duration<double>;

// SIGINT or SIGTERM has come to us while a SignalWatch lived.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

// While it lives, SIGINT and SIGTERM are noted instead of ending us; whoever waits for a Child then throws Interrupted.
// One at a time.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  static bool pending();

 private:
  struct Before;
  Before* before_;
};

// A program at work, in a process group of its own. It and all that it has started are killed when this goes away.
class Child {
 public:
  // Runs in `folder`; what it prints is appended to the file `output`. Throws Error if there is no such program.
  Child(const std::vector<std::string>& command, const std::filesystem::path& folder,
        const std::filesystem::path& output);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool wait(Duration at_most);  // true: it has ended. Throws Interrupted
  void signal(int number);      // to the whole group
  bool failed() const { return status_ != 0; }
  std::string ending() const;  // "exit code 3", "signal 11 (Segmentation fault)"

 private:
  bool ended();

  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace composer::cli

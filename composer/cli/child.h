#pragma once
#include <chrono>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

namespace composer::cli {

using Duration = std::chrono::duration<double>;

// Thrown if this process received SIGINT or SIGTERM while a SignalWatch existed.
struct Interrupted : std::exception {
  const char* what() const noexcept override { return "interrupted"; }
};

// During its lifetime, SIGINT and SIGTERM are recorded instead of ending this process; Child::wait() then throws
// Interrupted. Only one may exist at a time.
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

// A running program in its own process group. The destructor kills it and all processes that it has started.
class Child {
 public:
  // Runs in `folder`; its output is appended to the file `output`. Throws Error if the program does not exist.
  Child(const std::vector<std::string>& command, const std::filesystem::path& folder,
        const std::filesystem::path& output);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  bool wait(Duration at_most);  // returns whether it has ended; throws Interrupted
  void signal(int number);      // to the whole group
  bool failed() const { return status_ != 0; }
  std::string ending() const;  // describes how it ended: "exit code 3", "signal 11 (Segmentation fault)"

 private:
  bool ended();

  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace composer::cli

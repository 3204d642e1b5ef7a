#include "composer/cli/launch_start.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "composer/util/environment.h"
#include "composer/util/text.h"

namespace composer::cli {
namespace {

// Returns 0, or why the file cannot be executed.
int error_of_executable(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return errno;
  return S_ISREG(file.st_mode) && ::access(path.c_str(), X_OK) == 0 ? 0 : EACCES;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// The data with which a forked process becomes a rank, prepared before the fork.
struct Image {
  const char* path;
  char* const* arguments;
  char* const* by_shell;  // for a script without #!
  char* const* environment;
  std::array<int, 3> descriptors;
  int kept, guard, report;
  pid_t parent;
  const sigset_t* mask;
};

// Calls only functions that are safe between fork() and exec.
[[noreturn]] void become(const Image& image) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != image.parent) ::_exit(1);  // the parent died before prctl()
  const pid_t group = ::getpid();
  if (image.guard >= 0 && ::write(image.guard, &group, sizeof group) != sizeof group) ::_exit(1);
  for (int number = 0; number < 3; ++number)
    if (const int from = image.descriptors[static_cast<std::size_t>(number)]; from >= 0) ::dup2(from, number);
  if (image.kept >= 0) ::fcntl(image.kept, F_SETFD, 0);
  ::sigprocmask(SIG_SETMASK, image.mask, nullptr);
  ::execve(image.path, image.arguments, image.environment);
  if (errno == ENOEXEC) ::execve("/bin/sh", image.by_shell, image.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t reported = ::write(image.report, &error, sizeof error);
  ::_exit(127);
}

}  // namespace

std::string error_text(int code) { return std::generic_category().message(code); }

Program find_program(const std::vector<std::string>& command) {
  const std::string& name = command.front();
  if (name.find('/') != std::string::npos) {
    const int error = error_of_executable(name);
    if (error != 0)
      throw StartError(error == ENOENT ? 127 : 126, "launch: cannot start ", name, ": ", error_text(error));
    return {name, command};
  }
  util::InText folders(environment_if_set("PATH").value_or("/bin:/usr/bin"));
  bool denied = false;
  for (std::string folder; !name.empty() && std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    const int error = error_of_executable(candidate);
    if (error == 0) return {candidate, command};
    denied = denied || (error == EACCES && std::filesystem::is_regular_file(candidate));
  }
  if (denied) throw StartError(126, "launch: cannot start ", name, ": ", error_text(EACCES));
  throw StartError(127, "launch: cannot start ", name, ": command not found");
}

pid_t start_process(const Program& program, const RankStart& start, const sigset_t& mask, int guard) {
  std::array<int, 2> report{};
  if (::pipe2(report.data(), O_CLOEXEC) != 0) throw Error("launch: cannot make a pipe: ", error_text(errno));
  std::vector<std::string> shell = {"sh", program.path};
  shell.insert(shell.end(), program.arguments.begin() + 1, program.arguments.end());
  const auto arguments = pointers(program.arguments), by_shell = pointers(shell);
  const auto environment = pointers(start.environment);
  const Image image{.path = program.path.c_str(),
                    .arguments = arguments.data(),
                    .by_shell = by_shell.data(),
                    .environment = environment.data(),
                    .descriptors = {start.input, start.output, start.errors},
                    .kept = start.kept,
                    .guard = guard,
                    .report = report[1],
                    .parent = ::getpid(),
                    .mask = &mask};
  const pid_t pid = ::fork();
  if (pid == 0) become(image);
  int error = errno;
  ::close(report[1]);
  if (pid > 0) {
    ::setpgid(pid, pid);
    ssize_t got = 0;
    while ((got = ::read(report[0], &error, sizeof error)) < 0 && errno == EINTR) {
    }
    if (got == 0) error = 0;  // closed by exec
    if (error != 0) ::waitpid(pid, nullptr, 0);
  }
  ::close(report[0]);
  if (error != 0)
    throw StartError(error == ENOENT ? 127 : 126, "launch: cannot start ", program.path, ": ", error_text(error),
                     error == ENOENT ? " (its interpreter?)" : "");
  return pid;
}

}  // namespace composer::cli

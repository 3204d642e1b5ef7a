#pragma once
#include <csignal>
#include <string>
#include <vector>

#include <sys/types.h>

#include "composer/core/error.h"

namespace composer::cli {

// Thrown if a program could not be started.
struct StartError : Error {
  template <class... Parts>
  explicit StartError(int exit_code, const Parts&... parts) : Error(parts...), code(exit_code) {}
  int code;  // exit code, as in a shell: 127 not found, 126 not executable
};

std::string error_text(int code);  // text of an errno

struct Program {
  std::string path;  // of the file to execute
  std::vector<std::string> arguments;
};
// Looks the command up in PATH, unless it contains a slash. Throws StartError.
Program find_program(const std::vector<std::string>& command);

// How a rank is started. Descriptors are those of this process; -1 means that the rank inherits this process's own one.
struct RankStart {
  std::vector<std::string> environment;  // "NAME=VALUE"
  int input = -1, output = -1, errors = -1;
  int kept = -1;  // inherited under its number; -1: none
};

// Starts the program as the leader of a new process group, which the kernel kills when this process dies. Returns when
// the program is executed. Writes the number of the group to `guard`. Throws StartError.
pid_t start_process(const Program& program, const RankStart& start, const sigset_t& mask, int guard);

}  // namespace composer::cli

// The program `composer`.
#include <iostream>
#include <unistd.h>

#include "composer/cli/console.h"
#include "composer/util/environment.h"

int main(int argc, char** argv) {
  const bool colors = ::isatty(STDOUT_FILENO) == 1 && !composer::environment_if_set("NO_COLOR");
  const int code = composer::cli::run({argv + 1, argv + argc}, {std::cout, std::cerr, colors});
  std::cout.flush();
  return std::cout ? code : composer::cli::kError;  // a full disk, a closed pipe
}

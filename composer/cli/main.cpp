// The program `composer`.
#include <cstdlib>
#include <iostream>
#include <unistd.h>

#include "composer/cli/console.h"

int main(int argc, char** argv) {
  const bool colors = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  const int code = composer::cli::run({argv + 1, argv + argc}, {std::cout, std::cerr, colors});
  std::cout.flush();
  return std::cout ? code : composer::cli::kError;  // a full disk, a closed pipe
}

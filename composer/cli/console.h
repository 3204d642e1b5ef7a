#pragma once
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace composer::cli {

// Exit codes, the same for all subcommands.
constexpr int kGood = 0;
constexpr int kBad = 1;    // damaged, different, or not equal to the uninterrupted run
constexpr int kError = 2;  // invalid usage, or a file that cannot be read

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool colors = false;
};

// Runs the program within this process: prints to the console and returns the exit code. `arguments` exclude its name.
int run(const std::vector<std::string>& arguments, const Console& console);

// A subcommand, and the function that executes it after the arguments are parsed.
using Action = std::function<int(const Console&)>;
using Command = std::pair<CLI::App*, Action>;
Command add_inspect(CLI::App& app);
Command add_compare(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_diff(CLI::App& app);
Command add_convert(CLI::App& app);
Command add_torture(CLI::App& app);
// `program`: the arguments after the first -- on the command line.
Command add_launch(CLI::App& app, std::vector<std::string> program);

}  // namespace composer::cli

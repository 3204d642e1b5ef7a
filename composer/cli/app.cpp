#include <algorithm>
#include <array>
#include <ostream>

#include <CLI/CLI.hpp>

#include "composer/cli/console.h"
#include "composer/cli/text.h"

namespace composer::cli {

int run(const std::vector<std::string>& arguments, const Console& console) {
  CLI::App app{
      "Inspects, verifies, compares and converts checkpoints and weights, and kills\n"
      "training programs to check that they lose nothing.",
      "composer"};
  app.footer(
      "Exit codes: 0 success (diff: equal), 1 damaged or different, 2 an error.\n"
      "composer SUBCOMMAND --help lists its options.");
  app.get_formatter()->column_width(24);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return "composer: " + std::string(error.what()) + " (see " + failed->get_display_name() + " --help)\n";
  });
  std::vector<Command> commands;
  for (const auto add : {add_inspect, add_verify, add_diff, add_convert, add_torture}) commands.push_back(add(app));
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, console.out, console.err) == 0 ? kGood : kError;
  }
  try {
    for (const auto& [command, action] : commands)
      if (command->parsed()) return action(console);
  } catch (const std::exception& error) {
    console.err << "composer: " << one_line(error) << '\n';
  }
  return kError;
}

}  // namespace composer::cli

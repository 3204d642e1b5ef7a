#include <algorithm>
#include <array>
#include <ostream>
#include <utility>

#include <torch/version.h>

#include <CLI/CLI.hpp>

#include "composer/cli/console.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/core/listed.h"

namespace composer::cli {

namespace {

std::string names_of_commands(const std::vector<Command>& commands) {
  return listed(commands, [](const Command& command) { return command.first->get_name(); });
}

// Accepts `help` and `help SUBCOMMAND`, like many programs.
std::vector<std::string> without_help(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.resize(std::min<std::size_t>(arguments.size(), 1));
  arguments.emplace_back("--help");
  return arguments;
}

// Cuts off the program that launch starts, with its arguments: CLI11 would split values such as [1,2].
std::vector<std::string> cut_program(std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front() != "launch") return {};
  const auto dashes = std::ranges::find(arguments, "--");
  if (dashes == arguments.end()) return {};
  std::vector<std::string> program(dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  return program;
}

}  // namespace

int run(const std::vector<std::string>& given, const Console& console) {
  std::vector<std::string> arguments = without_help(given);
  std::vector<std::string> program = cut_program(arguments);
  CLI::App app{
      "Inspects, verifies, compares and converts checkpoints and weights, starts the\n"
      "ranks of training programs, and kills programs to check that they lose nothing.",
      "composer"};
  app.footer(
      "Exit codes: 0 success (diff: equal), 1 damaged or different, 2 an error.\n"
      "composer SUBCOMMAND --help lists its options.");
  app.get_formatter()->column_width(24);
  app.require_subcommand(1);
  const bool launches = !arguments.empty() && arguments.front() == "launch" && program.empty();
  app.failure_message([launches](const CLI::App* failed, const CLI::Error& error) {
    // CLI11 lists unexpected arguments from the end, and suggests asking the program itself for help.
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError) && launches)
      return std::string(
          "composer: launch: -- must stand before the program, as in: composer launch -n 2 -- ./train\n");
    return "composer: " + std::string(error.what()) + " (see " + failed->get_display_name() + " --help)\n";
  });
  std::vector<Command> commands;
  for (const auto add : {add_inspect, add_compare, add_verify, add_diff, add_convert, add_torture})
    commands.push_back(add(app));
  commands.push_back(add_launch(app, std::move(program)));
  app.set_version_flag("--version", join("composer ", COMPOSER_VERSION, ", libtorch ", TORCH_VERSION));
  const auto is_first = [&](const Command& command) { return command.first->get_name() == arguments.front(); };
  if (!arguments.empty() && !arguments.front().starts_with('-') && std::ranges::none_of(commands, is_first)) {
    console.err << "composer: there is no subcommand " << printable(arguments.front()) << "; there are "
                << names_of_commands(commands) << '\n';
    return kError;
  }
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

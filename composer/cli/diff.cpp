// composer diff A B
#include <memory>
#include <ostream>

#include <CLI/CLI.hpp>

#include "composer/cli/comparison.h"
#include "composer/cli/text.h"
#include "composer/util/text_table.h"

namespace composer::cli {
namespace {

struct DiffOptions {
  std::string a, b;
  std::vector<std::string> ignored;
  bool all = false, clocks = false, quiet = false, allow_unknown = false;
};

constexpr std::size_t kShown = 20;

int diff(const DiffOptions& options, const Console& console) {
  const Contents a = open_contents(options.a, options.allow_unknown);
  const Contents b = open_contents(options.b, options.allow_unknown);
  std::vector<std::string> ignored = options.ignored;
  if (!options.clocks) ignored.insert(ignored.end(), wall_clock_globs().begin(), wall_clock_globs().end());
  const auto [compared, equal, differences] = compare(a, b, ignored);
  if (!options.quiet) {
    std::size_t shown = 0;
    for (const auto& [name, what] : differences) {
      if (shown++ == kShown && !options.all) break;
      console.out << "  " << colored(console, Color::BOLD, printable(name)) << "\n      " << what << '\n';
    }
    if (!options.all && differences.size() > kShown)
      console.out << "  and " << differences.size() - kShown << " more (--all shows them)\n";
    console.out << util::grouped(equal) << " of " << util::grouped(compared)
                << " tensors and values are bit-identical\n";
  }
  return differences.empty() ? kGood : kBad;
}

}  // namespace

Command add_diff(CLI::App& app) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* command = app.add_subcommand("diff", "compares two checkpoints or files of weights");
  command->add_option("a", options->a, "a checkpoint, .safetensors or .pt")->required();
  command->add_option("b", options->b, "another; of one checkpoint, the weights count")->required();
  command->add_option("--ignore", options->ignored, "skip names that match: 'optimizer/*'")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_flag("--all", options->all, "show more than the first 20 differences");
  command->add_flag("--clocks", options->clocks, "also compare measured times");
  command->add_flag("--quiet", options->quiet, "print nothing; only the exit code");
  command->add_flag("--allow-unknown", options->allow_unknown,
                    "skip what this version cannot read: objects of unknown classes, tensors of unknown dtypes");
  command->footer("Exit codes: 0 bit-identical; 1 different; 2 an error.");
  return {command, [options](const Console& console) { return diff(*options, console); }};
}

}  // namespace composer::cli

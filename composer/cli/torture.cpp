// composer torture [OPTIONS] -- COMMAND...
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <ostream>

#include <CLI/CLI.hpp>

#include "composer/cli/campaign.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/util/temporary.h"

namespace composer::cli {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, int> kSignals = {{"KILL", SIGKILL}, {"TERM", SIGTERM}, {"INT", SIGINT}};

void check_torture(const TortureOptions& options) {
  const auto at_least = [](const char* name, auto value, int least) {
    if (value < least) throw ConfigError(name, ": must be >= ", least, ", got ", value);
  };
  at_least("--kills", options.kills, 0), at_least("--jobs", options.jobs, 1);
  at_least("--only-run", options.only_run, 0), at_least("--interval", options.interval, 0);
  if (!kSignals.contains(options.signal))
    throw ConfigError("--signal: must be KILL, TERM or INT, got ", options.signal);
}

// Chooses times at which a program trains, or is about to, so that each start makes progress and a run takes several
// kills.
KillOptions kill_options(const TortureOptions& options, const Reference& reference) {
  constexpr double kEarliest = 0.8, kShare = 1.0 / 3;
  KillOptions kill{.command = options.command,
                   .signal = kSignals.at(options.signal),
                   .seed = options.seed,
                   .min = Duration(options.min >= 0 ? options.min : kEarliest * reference.start_up),
                   .max = Duration(options.max),
                   .patience = Duration(60 + 20 * reference.seconds),
                   .interval = reference.interval};
  if (options.max < 0) kill.max = Duration(reference.start_up + kShare * (reference.seconds - reference.start_up));
  if (kill.max < kill.min)
    throw ConfigError("torture: --max must not be below --min, got ", kill.max.count(), " and ", kill.min.count());
  return kill;
}

// The folder that was given, or a temporary one, which is removed in the destructor unless it is to be kept.
struct Scratch {
  explicit Scratch(const std::string& given) : path(given) {
    if (given.empty())
      path = own.emplace(util::TemporaryKind::FOLDER, "composer-torture-").path();
    else if (fs::create_directories(path); !fs::is_empty(path))
      throw ConfigError("--folder: ", given, " must be empty");
    path = fs::canonical(path);
  }
  void keep() {
    if (own) own->keep();
  }
  std::optional<util::Temporary> own;
  fs::path path;
};

int torture(TortureOptions options, const Console& console) {
  check_torture(options);
  if (options.command.front().find('/') != std::string::npos)
    options.command.front() = fs::absolute(options.command.front()).string();
  const SignalWatch watch;
  Scratch scratch(options.folder);
  if (options.keep) scratch.keep();
  const auto start = std::chrono::steady_clock::now();
  try {
    console.out << "  the uninterrupted run ...";
    console.out.flush();
    const Reference reference = run_reference(options, scratch.path / "unbroken");
    const KillOptions kill = kill_options(options, reference);
    console.out << ' ' << seconds_text(reference.seconds) << ", " << seconds_text(reference.start_up)
                << " of them to start; kills after " << seconds_text(kill.min.count()) << " to "
                << seconds_text(kill.max.count()) << '\n';
    Campaign campaign;
    run_campaign(options, kill, reference, campaign, console);
    if (campaign.bad > 0) scratch.keep();
    return report(campaign, options, reference, Duration(std::chrono::steady_clock::now() - start).count(), console);
  } catch (const Interrupted&) {
    console.err << "composer: interrupted; all started processes were ended\n";
    return kError;
  }
}

}  // namespace

Command add_torture(CLI::App& app) {
  auto options = std::make_shared<TortureOptions>();
  CLI::App* command = app.add_subcommand("torture", "kills a training program repeatedly and checks its results");
  command->add_option("command", options->command, "the program, after --")->required();
  command->add_option("--kills", options->kills, "total number of kills (20)")->type_name("N");
  command->add_option("--seed", options->seed, "seed of the moments (1)")->type_name("N");
  command->add_option("--min", options->min, "shortest time from a start to the kill; default: measured")
      ->type_name("SECONDS");
  command->add_option("--max", options->max, "longest time, likewise")->type_name("SECONDS");
  command->add_option("--signal", options->signal, "KILL, TERM or INT (KILL)")->type_name("NAME");
  command->add_option("--jobs", options->jobs, "runs at once (1)")->type_name("N");
  command->add_option("--interval", options->interval, "batches between checkpoints; default: detected")
      ->type_name("N");
  command->add_option("--compare", options->files, "also compare files that match")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_option("--ignore", options->ignored, "skip values and keys that match")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_option("--only-run", options->only_run, "only the run of this number")->type_name("N");
  command->add_option("--folder", options->folder, "empty folder to work in")->type_name("FOLDER");
  command->add_flag("--keep", options->keep, "keep folders of equal runs");
  command->add_flag("--keep-going", options->keep_going, "continue after a run that was not equal");
  command->footer(
      "The program must write its checkpoints and logs below the folder it is started\n"
      "in, and resume from them when it is started again, which is repeated until it\n"
      "ends by itself. Every checkpoint, every *.jsonl, every *.csv of a CsvLogger and\n"
      "the files of --compare must be bit-identical, except for measured times.\n"
      "Exit codes: 0 everything is equal; 1 something is not; 2 an error, or no kill\n"
      "came after a checkpoint.");
  return {command, [options](const Console& console) { return torture(*options, console); }};
}

}  // namespace composer::cli

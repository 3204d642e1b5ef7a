// composer torture [OPTIONS] -- COMMAND...
#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <thread>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "composer/checkpoint/folder.h"
#include "composer/cli/contents.h"
#include "composer/cli/killed_run.h"
#include "composer/cli/same_run.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"

namespace composer::cli {
namespace {

namespace fs = std::filesystem;

const std::map<std::string, int> kSignals = {{"KILL", SIGKILL}, {"TERM", SIGTERM}, {"INT", SIGINT}};

struct Options {
  std::int64_t kills = 20, jobs = 1, only_run = 0, interval = 0;
  std::uint64_t seed = 1;
  double min = -1, max = -1;
  std::string signal = "KILL", folder;
  std::vector<std::string> files, ignored, command;
  bool keep = false, keep_going = false;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return Duration(std::chrono::steady_clock::now() - start).count();
}

// The run that is not killed.
struct Reference {
  fs::path folder;
  double seconds = 0, start_up = 0;  // until it has written something
  std::int64_t interval = 0;
};

// The largest step from one checkpoint to the next; if there is but one, to that.
std::int64_t interval_of(const fs::path& folder) {
  std::int64_t largest = 0, before = 0;
  const auto all = saving::list_checkpoints(folder);
  for (const saving::Found& found : all) {
    if (&found != &all.front() || all.size() == 1) largest = std::max(largest, found.manifest.time.batch - before);
    before = found.manifest.time.batch;
  }
  return largest;
}

Reference run_reference(const Options& options, const fs::path& folder) {
  constexpr Duration kLook(0.005), kLongest(24 * 3600);
  Reference reference{.folder = folder};
  fs::create_directories(folder);
  const auto start = std::chrono::steady_clock::now();
  Child child(options.command, folder, output_of(folder));
  while (fs::is_empty(folder) && !child.wait(kLook)) {
  }
  reference.start_up = seconds_since(start);
  child.wait(kLongest);
  reference.seconds = seconds_since(start);
  if (child.failed())
    throw Error(options.command.front(), ": ended with ", child.ending(),
                " without being killed: ", last_words(output_of(folder)));
  if (checkpoints_below(folder).empty())
    throw Error(options.command.front(), ": wrote no checkpoint below the folder it was started in, ", folder.string());
  reference.interval = options.interval > 0 ? options.interval : interval_of(folder);
  return reference;
}

// Moments in which a program trains, or is about to, so that each start gets somewhere and a run takes several kills.
KillOptions kill_options(const Options& options, const Reference& reference) {
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

struct Campaign {
  std::mutex mutex;
  std::int64_t next = 1, runs = 0, bad = 0;
  KilledRun all;  // summed up
  SameRun compared;
  std::vector<std::int64_t> kills_of_runs;
  std::string first;  // what was wrong first
  std::exception_ptr error;
};

void add(Campaign& campaign, const KilledRun& run, const SameRun& same) {
  KilledRun& all = campaign.all;
  ++campaign.runs;
  all.killed_at.insert(all.killed_at.end(), run.killed_at.begin(), run.killed_at.end());
  all.while_saving += run.while_saving, all.verified += run.verified, all.leftovers += run.leftovers;
  all.largest_lag = std::max(all.largest_lag, run.largest_lag);
  campaign.compared.checkpoints += same.checkpoints, campaign.compared.tensors += same.tensors;
  campaign.compared.lines += same.lines, campaign.compared.files += same.files;
}

std::string batches_text(const std::vector<std::int64_t>& batches) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(batches.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + count_text(batches[i]);
  return batches.size() > kMost ? text + ", ..." : text;
}

void report_run(const KilledRun& run, const Console& console) {
  console.out << "  run " << run.number << ": " << plural(static_cast<std::int64_t>(run.killed_at.size()), "kill");
  if (!run.killed_at.empty()) console.out << " (batch " << batches_text(run.killed_at) << ")";
  console.out << ": "
              << (run.wrong.empty() ? colored(console, Color::GREEN, "equal") : colored(console, Color::RED, "WRONG"))
              << '\n';
  for (const std::string& what : run.wrong) console.out << "      " << printable(what) << '\n';
  console.out.flush();
}

// Runs until there are no kills left; called by several threads.
void work(const Options& options, const KillOptions& kill, const Reference& reference, KillBudget& budget,
          Campaign& campaign, const Console& console) {
  for (;;) {
    std::int64_t number = 0;
    {
      const std::lock_guard lock(campaign.mutex);
      if (campaign.next > 1 && (!budget.left() || options.only_run > 0)) return;
      number = options.only_run > 0 ? options.only_run : campaign.next;
      ++campaign.next;
    }
    const fs::path folder = reference.folder.parent_path() / join("run-", number);
    KilledRun run = run_killed(kill, number, folder, budget);
    SameRun same;
    if (run.wrong.empty()) {
      same = compare_runs(reference.folder, folder, options.files, options.ignored);
      run.wrong = same.differences;
    }
    const std::lock_guard lock(campaign.mutex);
    add(campaign, run, same);
    report_run(run, console);
    if (!run.wrong.empty()) {
      if (campaign.bad++ == 0)
        campaign.first =
            join("seen in ", folder.string(), ", expected as in ", reference.folder.string(),
                 "\n  again with:  composer torture --seed ", options.seed, " --only-run ", number, " --kills ",
                 run.killed_at.size(), " --min ", kill.min.count(), " --max ", kill.max.count(), " ...");
      if (!options.keep_going) budget.spend();
    } else if (!options.keep) {
      fs::remove_all(folder);
      fs::remove(output_of(folder));
    }
  }
}

void work_together(const Options& options, const KillOptions& kill, const Reference& reference, KillBudget& budget,
                   Campaign& campaign, const Console& console) {
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; i < options.jobs; ++i)
    threads.emplace_back([&] {
      try {
        work(options, kill, reference, budget, campaign, console);
      } catch (...) {
        const std::lock_guard lock(campaign.mutex);
        budget.spend();
        if (!campaign.error) campaign.error = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (campaign.error) std::rethrow_exception(campaign.error);
}

void report(Campaign& campaign, const Reference& reference, double seconds, const Console& console) {
  auto& batches = campaign.all.killed_at;
  std::ranges::sort(batches);
  console.out << '\n';
  Table table("ll");
  const auto kills = static_cast<std::int64_t>(batches.size());
  table.row({"kills", count_text(kills) + " in " + plural(campaign.runs, "run") + ", " + seconds_text(seconds)});
  if (kills > 0)
    table.row({"after batch", count_text(batches.front()) + " to " + count_text(batches.back()) + ", median " +
                                  count_text(batches[batches.size() / 2])});
  table.row({"while a checkpoint was written", count_text(campaign.all.while_saving)});
  table.row({"checkpoints verified after kills", count_text(campaign.all.verified)});
  table.row({"newest checkpoint behind the log", "at most " + plural(campaign.all.largest_lag, "batch") +
                                                     " (save interval " + count_text(reference.interval) + ")"});
  const SameRun& same = campaign.compared;
  table.row({"compared with the unbroken run",
             plural(same.checkpoints, "checkpoint") + " (" + plural(same.tensors, "tensor") + " and values), " +
                 plural(same.lines, "line") + " of logs" + (same.files > 0 ? ", " + plural(same.files, "file") : "")});
  if (campaign.all.leftovers > 0)
    table.row({"temporary folders left", count_text(campaign.all.leftovers) + " (they do no harm)"});
  table.row({"runs that were not equal", count_text(campaign.bad)});
  table.print(console.out);
  if (campaign.bad == 0)
    console.out << colored(console, Color::GREEN, "nothing was lost") << '\n';
  else
    console.out << colored(console, Color::RED, "WRONG") << ": " << campaign.first << '\n';
}

// Takes itself away, unless it is to be kept.
struct Scratch {
  explicit Scratch(const std::string& given) : path(given), own(given.empty()) {
    if (own) {
      std::string name = (fs::temp_directory_path() / "composer-torture-XXXXXX").string();
      if (::mkdtemp(name.data()) == nullptr) throw Error("torture: could not make the folder ", name);
      path = name;
    } else if (fs::create_directories(path); !fs::is_empty(path)) {
      throw ConfigError("--folder: ", given, " must be empty");
    }
    path = fs::canonical(path);
  }
  ~Scratch() {
    std::error_code ignored;
    if (own && !keep) fs::remove_all(path, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path path;
  bool own, keep = false;
};

int torture(Options options, const Console& console) {
  if (options.command.front().find('/') != std::string::npos)
    options.command.front() = fs::absolute(options.command.front()).string();
  const SignalWatch watch;
  Scratch scratch(options.folder);
  scratch.keep = options.keep;
  const auto start = std::chrono::steady_clock::now();
  try {
    console.out << "  the run that is not killed ...";
    console.out.flush();
    const Reference reference = run_reference(options, scratch.path / "unbroken");
    const KillOptions kill = kill_options(options, reference);
    console.out << ' ' << seconds_text(reference.seconds) << ", " << seconds_text(reference.start_up)
                << " of them to start; kills after " << seconds_text(kill.min.count()) << " to "
                << seconds_text(kill.max.count()) << '\n';
    KillBudget budget(options.kills);
    Campaign campaign;
    work_together(options, kill, reference, budget, campaign, console);
    scratch.keep = scratch.keep || campaign.bad > 0;
    report(campaign, reference, seconds_since(start), console);
    return campaign.bad == 0 ? kGood : kBad;
  } catch (const Interrupted&) {
    console.err << "composer: interrupted; what was started is ended\n";
    return kError;
  }
}

}  // namespace

Command add_torture(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "torture",
      "kills a training program again and again, starts it again each time until it ends by itself, and\n"
      "compares with a run that was not killed");
  command
      ->add_option("command", options->command,
                   "the program, after --; it must write its checkpoints and logs below "
                   "the folder it is started in, and go on from them when started again")
      ->required();
  const auto at_least = [](double least) { return CLI::Range(least, 1e12); };
  command->add_option("--kills", options->kills, "in all, over as many runs as that takes")
      ->check(at_least(0))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the moments")->capture_default_str();
  command
      ->add_option("--min", options->min, "seconds from a start to the kill; by default from what the first run took")
      ->check(at_least(0));
  command->add_option("--max", options->max, "likewise")->check(at_least(0));
  command->add_option("--signal", options->signal, "KILL, TERM or INT")
      ->check(CLI::IsMember({"KILL", "TERM", "INT"}))
      ->capture_default_str();
  command->add_option("--jobs", options->jobs, "runs at once")->check(CLI::Range(1, 1024))->capture_default_str();
  command->add_option("--interval", options->interval, "batches between checkpoints; by default as seen")
      ->check(at_least(1));
  command->add_option("--compare", options->files, "compare files that fit this GLOB, too; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_option("--ignore", options->ignored, "pass over values and log keys that fit; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  command->add_option("--only-run", options->only_run, "only the run of this number")->check(at_least(1));
  command->add_option("--folder", options->folder, "an empty one, to work in and to keep");
  command->add_flag("--keep", options->keep, "keep the folders of runs that were equal, too");
  command->add_flag("--keep-going", options->keep_going, "after a run that was not equal");
  command->footer(
      "Compared to the bit: every checkpoint, every *.jsonl, and what --compare names; not what clocks tell.\n"
      "Exit codes: 0 everything is equal; 1 something is not; 2 an error.");
  return {command, [options](const Console& console) { return torture(*options, console); }};
}

}  // namespace composer::cli

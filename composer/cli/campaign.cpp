#include "composer/cli/campaign.h"

#include <algorithm>
#include <ostream>
#include <thread>

#include "composer/checkpoint/folder.h"
#include "composer/cli/contents.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/util/text_table.h"

namespace composer::cli {

namespace fs = std::filesystem;

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return Duration(std::chrono::steady_clock::now() - start).count();
}

// The largest number of batches between two checkpoints; with only one checkpoint, up to that one.
std::int64_t interval_of(const fs::path& folder) {
  std::int64_t largest = 0, before = 0;
  const auto all = saving::list_checkpoints(folder);
  for (const saving::Found& found : all) {
    if (&found != &all.front() || all.size() == 1) largest = std::max(largest, found.manifest.time.batch - before);
    before = found.manifest.time.batch;
  }
  return largest;
}

void add(Campaign& campaign, const KilledRun& run, const SameRun& same) {
  KilledRun& all = campaign.all;
  ++campaign.runs;
  all.killed_at.insert(all.killed_at.end(), run.killed_at.begin(), run.killed_at.end());
  all.while_saving += run.while_saving, all.verified += run.verified;
  all.largest_lag = std::max(all.largest_lag, run.largest_lag);
  campaign.compared.checkpoints += same.checkpoints, campaign.compared.tensors += same.tensors;
  campaign.compared.lines += same.lines, campaign.compared.files += same.files;
}

std::string batches_text(const std::vector<std::int64_t>& batches) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(batches.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + util::grouped(batches[i]);
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

// Executes runs until there are no kills left; called by several threads.
void work(const TortureOptions& options, const KillOptions& kill, const Reference& reference, KillBudget& budget,
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
      same =
          compare_runs(reference.folder, folder,
                       {.files = options.files, .ignored = options.ignored, .asked_to_end = options.signal != "KILL"});
      run.wrong = same.differences;
    }
    const std::lock_guard lock(campaign.mutex);
    add(campaign, run, same);
    report_run(run, console);
    if (!run.wrong.empty()) {
      if (campaign.bad++ == 0)
        campaign.first =
            join("found in ", folder.string(), ", expected as in ", reference.folder.string(),
                 "\n  again with:  composer torture --seed ", options.seed, " --only-run ", number, " --kills ",
                 run.killed_at.size(), " --min ", kill.min.count(), " --max ", kill.max.count(), " ...");
      if (!options.keep_going) budget.spend();
    } else if (!options.keep) {
      fs::remove_all(folder);
      fs::remove(output_of(folder));
    }
  }
}

}  // namespace

Reference run_reference(const TortureOptions& options, const fs::path& folder) {
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

void run_campaign(const TortureOptions& options, const KillOptions& kill, const Reference& reference,
                  Campaign& campaign, const Console& console) {
  KillBudget budget(options.kills);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(options.jobs));
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

int report(Campaign& campaign, const TortureOptions& options, const Reference& reference, double seconds,
           const Console& console) {
  auto& batches = campaign.all.killed_at;
  std::ranges::sort(batches);
  console.out << '\n';
  util::TextTable table("ll");
  const auto kills = static_cast<std::int64_t>(batches.size());
  table.row({"kills", util::grouped(kills) + " in " + plural(campaign.runs, "run") + ", " + seconds_text(seconds)});
  if (kills > 0)
    table.row({"after batch", util::grouped(batches.front()) + " to " + util::grouped(batches.back()) + ", median " +
                                  util::grouped(batches[batches.size() / 2])});
  table.row({"while a checkpoint was written", util::grouped(campaign.all.while_saving)});
  table.row({"checkpoints verified after kills", util::grouped(campaign.all.verified)});
  table.row({"newest checkpoint behind the log", "at most " + plural(campaign.all.largest_lag, "batch") +
                                                     " (save interval " + util::grouped(reference.interval) + ")"});
  const SameRun& same = campaign.compared;
  table.row({"compared with the uninterrupted run",
             plural(same.checkpoints, "checkpoint") + " (" + plural(same.tensors, "tensor") + " and values), " +
                 plural(same.lines, "line") + " of logs" + (same.files > 0 ? ", " + plural(same.files, "file") : "")});
  table.row({"runs that were not equal", util::grouped(campaign.bad)});
  console.out << table.text(2);
  if (campaign.bad > 0) {
    console.out << colored(console, Color::RED, "WRONG") << ": " << campaign.first << '\n';
    return kBad;
  }
  if (options.kills > 0 && campaign.all.verified == 0) {
    console.err << "composer: no kill came after a checkpoint, so nothing is known; kill later (--min, --max) or save "
                   "more often\n";
    return kError;
  }
  console.out << colored(console, Color::GREEN, "nothing was lost") << '\n';
  return kGood;
}

}  // namespace composer::cli

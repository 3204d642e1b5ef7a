#include "composer/cli/killed_run.h"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <random>

#include "composer/cli/contents.h"
#include "composer/cli/damage.h"
#include "composer/cli/same_run.h"
#include "composer/core/error.h"

namespace composer::cli {

namespace fs = std::filesystem;

namespace {

// Uniform numbers in [0, 1), the same on all machines.
class Random {
 public:
  Random(std::uint64_t seed, std::int64_t number) {
    std::seed_seq words{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                        static_cast<std::uint32_t>(number)};
    engine_.seed(words);
  }
  double operator()() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }

 private:
  std::mt19937_64 engine_;
};

std::int64_t newest_batch(const fs::path& folder) {
  std::int64_t newest = 0;
  for (const saving::Found& found : saving::list_checkpoints(folder))
    newest = std::max(newest, found.manifest.time.batch);
  return newest;
}

// The state after the previous kill.
struct Seen {
  std::int64_t newest = 0;
  std::vector<fs::path> leftovers;
};

// Checks what must hold after each kill.
void check_after_kill(const KillOptions& options, const fs::path& folder, Seen& last, KilledRun& run) {
  const auto wrong = [&](const std::string& what) {
    run.wrong.push_back(join("after kill ", run.killed_at.size(), ": ", what));
  };
  const std::int64_t newest = newest_batch(folder);
  const std::int64_t known = std::max({last_logged_batch(folder), newest, last.newest});
  run.killed_at.push_back(known);
  run.largest_lag = std::max(run.largest_lag, known - newest);
  for (const fs::path& path : checkpoints_below(folder)) {
    ++run.verified;
    for (const std::string& damage : findings_of(path).damage) wrong(damage);
  }
  const auto leftovers = leftovers_below(folder);
  if (!std::ranges::includes(last.leftovers, leftovers)) ++run.while_saving;
  if (newest < last.newest)
    wrong(join("the newest checkpoint is of batch ", newest, ", but one of batch ", last.newest, " existed before"));
  if (known - newest > 2 * options.interval)
    wrong(join("batch ", known, " was logged, but the newest checkpoint is of batch ", newest,
               ": more than two save intervals of ", options.interval));
  last = {newest, leftovers};
}

// Returns false if the process does not end after a request.
bool kill(Child& child, const KillOptions& options) {
  child.signal(options.signal);
  if (child.wait(options.patience)) return true;
  child.signal(SIGKILL);
  child.wait(options.patience);
  return false;
}

}  // namespace

bool KillBudget::take() {
  std::int64_t left = left_;
  while (left > 0)
    if (left_.compare_exchange_weak(left, left - 1)) return true;
  return false;
}

KilledRun run_killed(const KillOptions& options, std::int64_t number, const fs::path& folder, KillBudget& budget) {
  KilledRun run{.number = number};
  Random random(options.seed, number);
  fs::create_directories(folder);
  Seen last;
  while (run.wrong.empty()) {
    const Duration delay = options.min + (options.max - options.min) * random();
    const bool kills = budget.take();
    Child child(options.command, folder, output_of(folder));
    if (!child.wait(kills ? delay : options.patience)) {
      if (!kills) {
        run.wrong.push_back(join("did not end within ", options.patience.count(), " s"));
        break;
      }
      run.delays.push_back(delay.count());
      if (!kill(child, options))
        run.wrong.push_back(join("did not end within ", options.patience.count(), " s of the signal"));
      check_after_kill(options, folder, last, run);
      continue;
    }
    if (kills) budget.give_back();
    if (child.failed())
      run.wrong.push_back(join("ended with ", child.ending(), " after kill ", run.killed_at.size(), ": ",
                               last_words(output_of(folder))));
    break;
  }
  const auto leftovers = leftovers_below(folder);
  if (run.wrong.empty() && !leftovers.empty())
    run.wrong.push_back(join("it has ended, but left ", leftovers.front().string()));
  return run;
}

std::string last_words(const fs::path& output) {
  constexpr std::size_t kLines = 3;
  std::vector<std::string> lines;
  std::ifstream file(output);
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    lines.push_back(line);
    if (lines.size() > kLines) lines.erase(lines.begin());
  }
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "; ") + line;
  return text.empty() ? "it printed nothing" : text;
}

fs::path output_of(const fs::path& folder) { return folder.string() + ".log"; }

}  // namespace composer::cli

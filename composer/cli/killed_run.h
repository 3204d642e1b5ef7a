#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "composer/cli/child.h"

namespace composer::cli {

struct KillOptions {
  std::vector<std::string> command;
  int signal = 9;
  std::uint64_t seed = 1;
  Duration min{0}, max{0};    // the kill comes at a time between these after the start
  Duration patience{60};      // how long to wait for a process that should end by itself
  std::int64_t interval = 0;  // batches between two checkpoints
};

// The remaining kills, shared by all runs.
class KillBudget {
 public:
  explicit KillBudget(std::int64_t kills) : left_(kills) {}
  bool take();
  void give_back() { ++left_; }
  void spend() { left_ = 0; }
  bool left() const { return left_ > 0; }

 private:
  std::atomic<std::int64_t> left_;
};

struct KilledRun {
  std::int64_t number = 0;
  std::vector<std::int64_t> killed_at;  // last batch in the log or a checkpoint, for each kill
  std::vector<double> delays;
  std::int64_t while_saving = 0;  // kills that left a temporary folder
  std::int64_t verified = 0;      // number of checkpoints verified after kills
  std::int64_t largest_lag = 0;   // in batches, from the newest checkpoint to the end of the log
  std::vector<std::string> wrong;
};

// Starts the command in `folder` and kills it at times that depend on seed and number, repeatedly, until it ends by
// itself. After each kill, every checkpoint must be complete, and the newest must not be older than before, nor more
// than two intervals behind the log: one interval that was trained, and one during which a checkpoint was written. At
// the end no temporary folder may remain.
KilledRun run_killed(const KillOptions& options, std::int64_t number, const std::filesystem::path& folder,
                     KillBudget& budget);

// The last lines in the file of its output.
std::string last_words(const std::filesystem::path& output);
std::filesystem::path output_of(const std::filesystem::path& folder);

}  // namespace composer::cli

#pragma once
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "composer/cli/console.h"
#include "composer/cli/killed_run.h"
#include "composer/cli/same_run.h"

namespace composer::cli {

struct TortureOptions {
  std::int64_t kills = 20, jobs = 1, only_run = 0, interval = 0;
  std::uint64_t seed = 1;
  double min = -1, max = -1;
  std::string signal = "KILL", folder;
  std::vector<std::string> files, ignored, command;
  bool keep = false, keep_going = false;
};

// The uninterrupted run.
struct Reference {
  std::filesystem::path folder;
  double seconds = 0, start_up = 0;  // seconds until its first output
  std::int64_t interval = 0;
};

Reference run_reference(const TortureOptions& options, const std::filesystem::path& folder);

// Totals and the first failure of all killed runs.
struct Campaign {
  std::mutex mutex;
  std::int64_t next = 1, runs = 0, bad = 0;
  KilledRun all;  // totals
  SameRun compared;
  std::string first;  // the first failure
  std::exception_ptr error;
};

// Executes killed runs in folders beside the reference's folder, several at once, until all kills are done, and reports
// each run.
void run_campaign(const TortureOptions& options, const KillOptions& kill, const Reference& reference,
                  Campaign& campaign, const Console& console);
// Returns the exit code. If kills were requested but none came after a checkpoint, nothing is proved: returns kError.
int report(Campaign& campaign, const TortureOptions& options, const Reference& reference, double seconds,
           const Console& console);

}  // namespace composer::cli

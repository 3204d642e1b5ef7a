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

// The run that is not killed.
struct Reference {
  std::filesystem::path folder;
  double seconds = 0, start_up = 0;  // until it has written something
  std::int64_t interval = 0;
};

Reference run_reference(const TortureOptions& options, const std::filesystem::path& folder);

// All runs that are killed, summed up.
struct Campaign {
  std::mutex mutex;
  std::int64_t next = 1, runs = 0, bad = 0;
  KilledRun all;  // summed up
  SameRun compared;
  std::string first;  // what was wrong first
  std::exception_ptr error;
};

// Runs killed runs beside the reference's folder until there are no kills left, several at once, and reports each.
void run_campaign(const TortureOptions& options, const KillOptions& kill, const Reference& reference,
                  Campaign& campaign, const Console& console);
void report(Campaign& campaign, const Reference& reference, double seconds, const Console& console);

}  // namespace composer::cli

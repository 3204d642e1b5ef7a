#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace composer::cli {

// Compares the folders of two runs of one program.
struct SameRun {
  std::int64_t checkpoints = 0, tensors = 0, lines = 0, files = 0;  // numbers compared
  std::vector<std::string> differences;                             // the first few
};

struct SameRunOptions {
  std::vector<std::string> files;    // globs of names within the folder that are also compared
  std::vector<std::string> ignored;  // globs of values and keys of logs
  // Ended by a signal, which writes additional checkpoints and so deletes others: then only common checkpoints are
  // compared, and the newest must be among them.
  bool asked_to_end = false;
};

// Compares every checkpoint below the folders, and every line of every *.jsonl and of every *.csv of a CsvLogger.
// Measured times are skipped.
SameRun compare_runs(const std::filesystem::path& expected, const std::filesystem::path& got,
                     const SameRunOptions& options);

// The batch in the last complete line that has one, in these logs below the folder; 0: there is none.
std::int64_t last_logged_batch(const std::filesystem::path& folder);

}  // namespace composer::cli

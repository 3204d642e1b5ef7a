#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace composer::cli {

// What two runs of one program left in their folders, side by side.
struct SameRun {
  std::int64_t checkpoints = 0, tensors = 0, lines = 0, files = 0;  // compared
  std::vector<std::string> differences;                             // the first few
};

struct SameRunOptions {
  std::vector<std::string> files;    // globs of names within the folder, which are compared too
  std::vector<std::string> ignored;  // globs of values and keys of logs
  bool asked_to_end = false;  // then a run writes checkpoints that the other has not, and keeps fewer of the others:
                              // those that both have are compared, and the newest must be one of them
};

// Every checkpoint below the folders and every line of every *.jsonl. What clocks tell is passed over.
SameRun compare_runs(const std::filesystem::path& expected, const std::filesystem::path& got,
                     const SameRunOptions& options);

// The batch in the last whole line of the *.jsonl files below it that has one; 0 if there is none.
std::int64_t last_logged_batch(const std::filesystem::path& folder);

}  // namespace composer::cli

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

// Every checkpoint below the folders, every line of every *.jsonl, and each file whose name within the folder fits one
// of the globs `files`. What clocks tell, and names that fit `ignored`, are passed over.
SameRun compare_runs(const std::filesystem::path& expected, const std::filesystem::path& got,
                     const std::vector<std::string>& files, const std::vector<std::string>& ignored);

// The batch in the last whole line of the *.jsonl files below it that has one; 0 if there is none.
std::int64_t last_logged_batch(const std::filesystem::path& folder);

}  // namespace composer::cli

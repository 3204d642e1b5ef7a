#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace composer::cli {

// The damage of a checkpoint or a file of weights, one line each. Both lists are empty if every byte is as it was
// written.
struct Findings {
  std::vector<std::string> damage;
  std::vector<std::string> unsupported;  // parts that this version cannot read, so that damage in them may be missed
};

// Never throws because of the content of files. With `allow_unknown`, unsupported parts are not reported.
Findings findings_of(const std::filesystem::path& path, bool allow_unknown = false);

}  // namespace composer::cli

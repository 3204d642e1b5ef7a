#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace composer::cli {

// What is wrong with a checkpoint or a file of weights, one line each. Both are empty if every byte is as it was
// written.
struct Findings {
  std::vector<std::string> damage;
  std::vector<std::string> unsupported;  // what this version cannot read, so that some damage to it is not seen
};

// Never throws because of the content of files. `allow_unknown`: what is not supported is no finding.
Findings findings_of(const std::filesystem::path& path, bool allow_unknown = false);

}  // namespace composer::cli

#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace composer::cli {

// Lists the damage of a checkpoint or a file of weights, one line each; empty if every byte is as it was written. Never
// throws because of the content of files.
std::vector<std::string> damage_of(const std::filesystem::path& path);

}  // namespace composer::cli

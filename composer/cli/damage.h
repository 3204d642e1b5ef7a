#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace composer::cli {

// What is wrong with a checkpoint or a file of weights, one line each; none if every byte is as it was written. Never
// throws for what is in the files.
std::vector<std::string> damage_of(const std::filesystem::path& path);

}  // namespace composer::cli

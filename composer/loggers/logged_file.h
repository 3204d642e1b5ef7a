#pragma once
// Handles a logged file at its destination, where a file with its name may exist. With LogFile::overwrite, the existing
// file is replaced. Without it, the existing file stays and must have the same contents, as after a resume; other
// contents are an error.
#include <cstdint>
#include <filesystem>
#include <string>

#include "composer/core/log_records.h"

namespace composer::loggers {

// Throws Error for a file that cannot be read.
bool same_contents(const std::filesystem::path& a, const std::filesystem::path& b);
// The size in bytes. Throws Error.
std::uint64_t size_of_file(const std::filesystem::path& file);
// Throws Error. `where`: the destination's path or address.
[[noreturn]] void reject_other_contents(const std::string& where);

// Copies the file to `target`, which appears complete or not at all. Throws Error.
void copy_logged_file(const LogFile& file, const std::filesystem::path& target);

}  // namespace composer::loggers

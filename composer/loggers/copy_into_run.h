#pragma once
// A logged file in the folder of a run. Internal to loggers.
#include <filesystem>
#include <string>
#include <string_view>

namespace composer::loggers {

// Copies a file and makes the folders that are missing. If there is another file already, it is replaced with
// `overwrite`, and otherwise an Error that begins with `who`; one with the same contents, as a resumed run finds, is
// fine.
void copy_into_run(std::string_view who, const std::string& from, const std::filesystem::path& to, bool overwrite);

}  // namespace composer::loggers

#pragma once
// Functions for callbacks that write files of their own. Names have the placeholders of checkpoint names.
#include <filesystem>
#include <initializer_list>
#include <string_view>

namespace composer {
struct State;
}

namespace composer::callbacks {

// An option whose value is the name of a file or folder.
struct FileNameOption {
  std::string_view option, name;
};
// Throws ConfigError, with the option, for a name that cannot be formatted: an unmatched brace, an unknown format spec.
void check_file_names(const char* who, std::initializer_list<FileNameOption> names);

// Throws ConfigError if the folder has files with this suffix and this run neither resumes nor begins again, because
// the files then belong to another run. `what`: the kind of files, such as "traces".
void refuse_files_of_another_run(const char* who, const std::filesystem::path& folder, std::string_view suffix,
                                 const char* what, const State& state);

}  // namespace composer::callbacks

#include "composer/callbacks/callback_files.h"

#include <system_error>

#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"
#include "composer/core/run.h"
#include "composer/core/state.h"

namespace composer::callbacks {

void check_file_names(const char* who, std::initializer_list<FileNameOption> names) {
  const Timestamp start;
  for (const auto& [option, name] : names) saving::format_name(name, "run", &start, join(who, ": ", option));
}

void refuse_files_of_another_run(const char* who, const std::filesystem::path& folder, std::string_view suffix,
                                 const char* what, const State& state) {
  std::error_code ignored;
  const bool is_own = state.resumes || (state.run && state.run->begins_again());
  if (is_own || !std::filesystem::is_directory(folder, ignored)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == suffix)
      throw ConfigError(who, ": the folder ", folder.string(), " has ", what, " of another run, such as ",
                        entry.path().filename().string(), "; choose another folder, or set overwrite");
}

}  // namespace composer::callbacks

#pragma once
// Names of event files: events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER.run-CHECKSUM
#include <string>
#include <string_view>
#include <vector>

namespace composer::loggers {

// The end of the names of a run's files. `identity` is that of state.run; if it is empty, `run_name` identifies the
// run.
std::string end_of_event_files(std::string_view run_name, std::string_view identity);
// The end of this name; empty if the name does not belong to a run.
std::string end_of_event_file(std::string_view name);

// A new name. It is unique among the processes of all machines. It sorts after the other files in the folder, whatever
// the clock says, because TensorBoard reads files in the order of their names.
std::string new_event_file_name(const std::string& folder, std::string_view end);

// The names of the files in the folder that have this end, in the order of names; none if `end` is empty.
std::vector<std::string> event_files_of(const std::string& folder, std::string_view end);

// Whether TensorBoard reads the file `name` after the file `other`.
bool is_later_event_file(std::string_view name, std::string_view other);

}  // namespace composer::loggers

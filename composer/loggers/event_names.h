#pragma once
// Names of event files: events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER.run-CHECKSUM
#include <string>
#include <string_view>
#include <vector>

namespace composer::loggers {

// How the names of a run's files end. `identity`: of state.run; a run without one is known by its name.
std::string end_of_event_files(std::string_view run_name, std::string_view identity);
// How this name ends; empty if it is not one of a run.
std::string end_of_event_file(std::string_view name);

// Unique among the processes of all machines, and later than those of the other files in the folder: TensorBoard reads
// them in the order of their names, whatever the clock says.
std::string new_event_file_name(const std::string& folder, std::string_view end);

// The names of the files in the folder that end like this, in their order; none if `end` is empty.
std::vector<std::string> event_files_of(const std::string& folder, std::string_view end);

// Whether TensorBoard reads the file of this name after the other.
bool is_later_event_file(std::string_view name, std::string_view other);

}  // namespace composer::loggers

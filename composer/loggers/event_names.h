#pragma once
// Names of event files: events.out.tfevents.SECONDS.HOST.PROCESS.NUMBER.RUN
#include <string>
#include <string_view>
#include <vector>

namespace composer::loggers {

// Unique among the processes of all machines, and later than those of the other files in the folder: TensorBoard reads
// them in the order of their names, whatever the clock says.
std::string new_event_file_name(const std::string& folder, std::string_view run_name);

// The names of the files in the folder that processes of this run have begun, in their order. A run without a name has
// none.
std::vector<std::string> event_files_of(const std::string& folder, std::string_view run_name);

// Whether TensorBoard reads the file of this name after the other.
bool is_later_event_file(std::string_view name, std::string_view other);

}  // namespace composer::loggers

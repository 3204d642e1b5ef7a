// The values that SystemMetricsMonitor logs, read without a trainer. Internal.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "composer/device/device_reader.h"

namespace composer::callbacks {

std::string text_of_file(const char* path);  // empty if it cannot be read

// Time of all processors, in ticks, from the text of /proc/stat.
struct CpuTimes {
  std::int64_t busy = 0, total = 0;
};
std::optional<CpuTimes> cpu_times(std::string_view stat);
// Percentage of the time between the two that processors were busy, with one decimal.
double busy_percentage(const CpuTimes& from, const CpuTimes& to);

// Adds cpu_memory_*, from the text of /proc/meminfo.
void add_memory(Readings& readings, std::string_view meminfo);
// Adds disk_memory_* of the file system that contains `path`.
void add_disk(Readings& readings, const char* path);
// Adds network_*, summed over all interfaces, from the text of /proc/net/dev.
void add_network(Readings& readings, std::string_view dev);

}  // namespace composer::callbacks

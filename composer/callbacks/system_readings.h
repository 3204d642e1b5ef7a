// What SystemMetricsMonitor logs, without a trainer. Internal.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "composer/device/device_reader.h"

namespace composer::callbacks {

std::string text_of_file(const char* path);  // empty if it cannot be read

// Time of all processors, in ticks, by the text of /proc/stat.
struct CpuTimes {
  std::int64_t busy = 0, total = 0;
};
std::optional<CpuTimes> cpu_times(std::string_view stat);
// Percentage of the time between the two that processors were busy, with one decimal.
double busy_percentage(const CpuTimes& from, const CpuTimes& to);

// Adds cpu_memory_*, by the text of /proc/meminfo.
void add_memory(Readings& readings, std::string_view meminfo);
// Adds disk_memory_* of the file system that `path` is on.
void add_disk(Readings& readings, const char* path);
// Adds network_*, sums over all interfaces, by the text of /proc/net/dev.
void add_network(Readings& readings, std::string_view dev);

}  // namespace composer::callbacks

#include "composer/callbacks/system_readings.h"

#include <array>
#include <charconv>
#include <cmath>
#include <fstream>
#include <utility>

#include <sys/statvfs.h>

#include "composer/util/text.h"

namespace composer::callbacks {
namespace {

double one_decimal(double value) { return std::round(value * 10) / 10; }

double percentage(double part, double whole) { return whole > 0 ? one_decimal(100 * part / whole) : 0; }

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return line;
}

// The next whole number in a line; nullopt: there is none.
std::optional<std::int64_t> next_number(std::string_view& line) {
  const std::size_t begin = line.find_first_of("0123456789");
  if (begin == std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(line.data() + begin, line.data() + line.size(), number);
  line = line.substr(static_cast<std::size_t>(end - line.data()));
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

// The value of a line "MemTotal:  123 kB", in bytes; 0 if there is no such line.
std::int64_t bytes_of(std::string_view meminfo, std::string_view name) {
  while (!meminfo.empty()) {
    std::string_view line = next_line(meminfo);
    if (line.starts_with(name) && line.substr(name.size()).starts_with(':')) {
      line = line.substr(name.size());
      return next_number(line).value_or(0) * 1024;
    }
  }
  return 0;
}

}  // namespace

std::string text_of_file(const char* path) {
  std::ifstream file(path);
  util::OutText text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::optional<CpuTimes> cpu_times(std::string_view stat) {
  std::string_view line = next_line(stat);
  if (!line.starts_with("cpu ")) return std::nullopt;
  // User, nice, system, idle, iowait, irq, softirq, steal; the time of guests is included in user.
  std::array<std::int64_t, 8> ticks{};
  CpuTimes times;
  for (std::int64_t& tick : ticks) times.total += tick = next_number(line).value_or(0);
  times.busy = times.total - ticks[3] - ticks[4];
  return times;
}

double busy_percentage(const CpuTimes& from, const CpuTimes& to) {
  return percentage(static_cast<double>(to.busy - from.busy), static_cast<double>(to.total - from.total));
}

void add_memory(Readings& readings, std::string_view meminfo) {
  const auto bytes = [meminfo](std::string_view name) { return bytes_of(meminfo, name); };
  const std::int64_t total = bytes("MemTotal"), available = bytes("MemAvailable"), free = bytes("MemFree"),
                     buffers = bytes("Buffers"), cached = bytes("Cached") + bytes("SReclaimable");
  readings.push_back({"cpu_memory_total", total});
  readings.push_back({"cpu_memory_available", available});
  readings.push_back(
      {"cpu_memory_percent", percentage(static_cast<double>(total - available), static_cast<double>(total))});
  readings.push_back({"cpu_memory_used", total - free - buffers - cached});
  readings.push_back({"cpu_memory_free", free});
  readings.push_back({"cpu_memory_active", bytes("Active")});
  readings.push_back({"cpu_memory_inactive", bytes("Inactive")});
  readings.push_back({"cpu_memory_buffers", buffers});
  readings.push_back({"cpu_memory_cached", cached});
  readings.push_back({"cpu_memory_shared", bytes("Shmem")});
  readings.push_back({"cpu_memory_slab", bytes("Slab")});
}

void add_disk(Readings& readings, const char* path) {
  struct statvfs disk {};
  if (statvfs(path, &disk) != 0) return;
  const auto block = static_cast<std::int64_t>(disk.f_frsize);
  const std::int64_t total = static_cast<std::int64_t>(disk.f_blocks) * block,
                     used = total - static_cast<std::int64_t>(disk.f_bfree) * block,
                     free = static_cast<std::int64_t>(disk.f_bavail) * block;
  readings.push_back({"disk_memory_total", total});
  readings.push_back({"disk_memory_used", used});
  readings.push_back({"disk_memory_free", free});
  readings.push_back({"disk_memory_percent", percentage(static_cast<double>(used), static_cast<double>(used + free))});
}

void add_network(Readings& readings, std::string_view dev) {
  std::array<std::int64_t, 16> sums{};  // received: bytes, packets, errors, dropped, ...; then sent, in the same order
  while (!dev.empty()) {
    const std::string_view line = next_line(dev);
    const std::size_t colon = line.find(':');  // headings have no colon
    if (colon == std::string_view::npos) continue;
    std::string_view rest = line.substr(colon + 1);
    for (std::int64_t& sum : sums) sum += next_number(rest).value_or(0);
  }
  constexpr std::array<std::pair<const char*, std::size_t>, 8> kKeys = {{{"network_bytes_sent", 8},
                                                                         {"network_bytes_recv", 0},
                                                                         {"network_packets_sent", 9},
                                                                         {"network_packets_recv", 1},
                                                                         {"network_errin", 2},
                                                                         {"network_errout", 10},
                                                                         {"network_dropin", 3},
                                                                         {"network_dropout", 11}}};
  for (const auto& [key, column] : kKeys) readings.push_back({key, sums.at(column)});
}

}  // namespace composer::callbacks

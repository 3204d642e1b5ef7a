#include "composer/callbacks/memory_statistics.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <sys/resource.h>

#include "composer/core/error.h"

namespace composer::callbacks {
namespace {

using Stats = DeviceStatistic::DeviceStats;
using Stat = DeviceStatistic::Stat;
using StatArray = DeviceStatistic::StatArray;

template <class T>
struct NamedMember {
  std::string_view name;
  T member;
};

constexpr std::array kArrays = {
    NamedMember<StatArray Stats::*>{"allocation", &Stats::allocation},
    NamedMember<StatArray Stats::*>{"segment", &Stats::segment},
    NamedMember<StatArray Stats::*>{"active", &Stats::active},
    NamedMember<StatArray Stats::*>{"inactive_split", &Stats::inactive_split},
    NamedMember<StatArray Stats::*>{"allocated_bytes", &Stats::allocated_bytes},
    NamedMember<StatArray Stats::*>{"reserved_bytes", &Stats::reserved_bytes},
    NamedMember<StatArray Stats::*>{"active_bytes", &Stats::active_bytes},
    NamedMember<StatArray Stats::*>{"inactive_split_bytes", &Stats::inactive_split_bytes},
    NamedMember<StatArray Stats::*>{"requested_bytes", &Stats::requested_bytes},
};
constexpr std::array kSingles = {
    NamedMember<Stat Stats::*>{"oversize_allocations", &Stats::oversize_allocations},
    NamedMember<Stat Stats::*>{"oversize_segments", &Stats::oversize_segments},
};
constexpr std::array kCounts = {
    NamedMember<std::int64_t Stats::*>{"num_alloc_retries", &Stats::num_alloc_retries},
    NamedMember<std::int64_t Stats::*>{"num_ooms", &Stats::num_ooms},
    NamedMember<std::int64_t Stats::*>{"num_sync_all_streams", &Stats::num_sync_all_streams},
    NamedMember<std::int64_t Stats::*>{"num_device_alloc", &Stats::num_device_alloc},
    NamedMember<std::int64_t Stats::*>{"num_device_free", &Stats::num_device_free},
};
constexpr std::array kParts = {
    NamedMember<std::int64_t Stat::*>{"current", &Stat::current},
    NamedMember<std::int64_t Stat::*>{"peak", &Stat::peak},
    NamedMember<std::int64_t Stat::*>{"allocated", &Stat::allocated},
    NamedMember<std::int64_t Stat::*>{"freed", &Stat::freed},
};
constexpr std::array kPools = {NamedMember<std::size_t>{"all", 0}, NamedMember<std::size_t>{"small_pool", 1},
                               NamedMember<std::size_t>{"large_pool", 2}};

template <class Table, class T>
bool find_member(const Table& table, std::string_view name, T& member) {
  for (const auto& row : table)
    if (row.name == name) return member = row.member, true;
  return false;
}

std::string_view next_part(std::string_view& rest) {
  const std::size_t dot = rest.find('.');
  const std::string_view part = rest.substr(0, dot);
  rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
  return part;
}

// Converts "VmRSS:      1234 kB" into bytes.
std::optional<std::int64_t> field_of(std::string_view status, std::string_view name) {
  std::size_t at = status.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  at = status.find_first_of("0123456789", at);
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t kilobytes = 0;
  std::from_chars(status.data() + at, status.data() + status.size(), kilobytes);
  return kilobytes * 1024;
}

using Text = std::array<char, 4096>;

std::string_view read_again(int descriptor, Text& text) {
  const ssize_t size = descriptor < 0 ? -1 : pread(descriptor, text.data(), text.size(), 0);
  return {text.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

// The peak resident size in bytes.
std::int64_t peak_in_usage() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * 1024 : 0;
}

}  // namespace

DeviceStatistic::DeviceStatistic(std::string_view name) : in_bytes(name.find("bytes") != std::string_view::npos) {
  std::string_view rest = name;
  const std::string_view first = next_part(rest);
  bool known = false;
  if (find_member(kCounts, first, count_)) {
    known = rest.empty();
  } else if (find_member(kSingles, first, single_)) {
    known = find_member(kParts, rest, part_);
  } else if (find_member(kArrays, first, array_)) {
    known = find_member(kPools, next_part(rest), pool_) && find_member(kParts, rest, part_);
  }
  if (!known)
    throw ConfigError("MemoryMonitor: memory_keys: there is no statistic \"", name,
                      "\"; expected a name of torch.cuda.memory_stats(), such as allocated_bytes.all.peak");
}

std::int64_t DeviceStatistic::of(const DeviceStats& stats) const {
  if (count_) return stats.*count_;
  return (single_ ? stats.*single_ : (stats.*array_)[pool_]).*part_;
}

double gigabytes(std::int64_t bytes) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), static_cast<double>(bytes) / 1e9,
                                          std::chars_format::scientific, 4);
  double rounded = 0;
  std::from_chars(text.data(), end, rounded);
  return rounded;
}

ProcessMemoryReader::File::File(const char* path) : descriptor(open(path, O_RDONLY | O_CLOEXEC)) {}
ProcessMemoryReader::File::~File() {
  if (descriptor >= 0) close(descriptor);
}

ProcessMemoryReader::ProcessMemoryReader() : statm_("/proc/self/statm"), status_("/proc/self/status") {
  const std::int64_t peak = peak_in_usage();
  if (const auto own = peak_in_status(); own && *own < peak) inherited_ = peak;
}

std::optional<ProcessMemory> ProcessMemoryReader::read() {
  Text text;
  std::string_view rest = read_again(statm_.descriptor, text);
  rest.remove_prefix(std::min(rest.find(' ') + 1, rest.size()));  // skips the size of the address space
  std::int64_t pages = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), pages).ec != std::errc()) return std::nullopt;
  static const std::int64_t page = sysconf(_SC_PAGESIZE);
  std::optional<std::int64_t> peak = peak_in_usage();
  if (*peak <= inherited_) peak = peak_in_status();
  if (!peak) return std::nullopt;
  peak_ = std::max({peak_, pages * page, *peak});
  return ProcessMemory{pages * page, peak_};
}

std::optional<std::int64_t> ProcessMemoryReader::peak_in_status() const {
  Text text;
  return field_of(read_again(status_.descriptor, text), "VmHWM:");
}

}  // namespace composer::callbacks

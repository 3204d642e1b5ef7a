#include "composer/step/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <unistd.h>
#include <unordered_map>

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/step/side_stream.h"
#include "composer/util/text.h"
#include "composer/util/tune_process.h"

namespace composer {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// The number in a file of one number; unlimited if there is none.
std::int64_t read_limit(const std::string& path) {
  std::int64_t bytes = 0;
  return std::ifstream(path) >> bytes ? bytes : kUnlimited;
}

// The smallest limit of the control groups that this process is in, of version 2 or 1.
std::int64_t control_group_limit() {
  std::int64_t limit = read_limit("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    for (std::string group = line.substr(3);; group.resize(group.rfind('/'))) {
      limit = std::min(limit, read_limit("/sys/fs/cgroup" + group + "/memory.max"));
      if (group.find('/') == std::string::npos) break;
    }
  }
  return limit;
}

std::int64_t resident_memory() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::int64_t machine_available() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    util::InText words(line);
    std::string name;
    std::int64_t kibibytes = 0;
    if (words >> name >> kibibytes && name == "MemAvailable:") return kibibytes * 1024;
  }
  return kUnlimited;
}

std::int64_t allocated_bytes(at::Device device, bool peak) {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(with_index(device).index());
  return peak ? stats.allocated_bytes[kAll].peak : stats.allocated_bytes[kAll].current;
}

}  // namespace

std::int64_t available_memory(at::Device device) {
  if (device.is_cpu()) {
    const std::int64_t left = std::min(control_group_limit() - resident_memory(), machine_available());
    return std::max<std::int64_t>(0, left) + static_cast<std::int64_t>(cpu_memory().cached);
  }
  c10::DeviceAllocator& allocator = *c10::getDeviceAllocator(device.type());
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = allocator.getDeviceStats(with_index(device).index());
  const std::int64_t cached = stats.reserved_bytes[kAll].current - stats.allocated_bytes[kAll].current;
  return static_cast<std::int64_t>(allocator.getMemoryInfo(with_index(device).index()).first) + cached;
}

void release_cached_memory(at::Device device) {
  if (device.is_cpu())
    empty_cpu_cache();
  else
    c10::getDeviceAllocator(device.type())->emptyCache();
}

struct MemoryScope::Report final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* block, std::int64_t size, std::size_t, std::size_t, c10::Device of) override {
    if (!of.is_cpu()) return;
    if (size < 0) {  // unknown: it is older than the scope
      const auto known = blocks.find(block);
      if (known == blocks.end()) return;
      now -= known->second;
      blocks.erase(known);
      return;
    }
    if (now + size > limit) refuse(block, size);
    blocks[block] = size;
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }

  // The block is there already, in nobody's hands yet.
  [[noreturn]] void refuse(void* block, std::int64_t size) const {
    if (const c10::DeleterFnPtr free = c10::GetCPUAllocator()->raw_deleter()) free(block);
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__},
                                join("out of memory: ", size, " bytes more than the ", now, " of this batch are above ",
                                     "the limit of ", limit));
  }

  std::int64_t now = 0, peak = 0, limit = 0;
  std::unordered_map<void*, std::int64_t> blocks;
};

void MemoryBudget::measure(at::Device device, std::int64_t reserved) {
  if (!is_given_) bytes_ = std::max<std::int64_t>(1, available_memory(device) - reserved);
}

MemoryScope::MemoryScope(at::Device device, std::int64_t limit) : device_(device) {
  if (!device.is_cpu()) {
    c10::getDeviceAllocator(device.type())->resetPeakStats(with_index(device).index());
    before_ = allocated_bytes(device, /*peak=*/false);
    return;
  }
  if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE)) return;
  report_ = std::make_shared<Report>();
  report_->limit = limit;
  guard_.emplace(c10::DebugInfoKind::PROFILER_STATE, report_);
}

MemoryScope::~MemoryScope() = default;

std::int64_t MemoryScope::peak() const {
  if (!device_.is_cpu()) return allocated_bytes(device_, /*peak=*/true) - before_;
  return report_ ? report_->peak : 0;
}

}  // namespace composer

// The memory that this process has and uses on the host.
#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <unordered_map>

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "composer/core/error.h"
#include "composer/device/cpu/cpu.h"
#include "composer/util/text.h"
#include "composer/util/tune_process.h"

namespace composer {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

// The number in a file that contains one number; unlimited if there is no such file.
std::int64_t read_limit(const std::string& path) {
  std::int64_t bytes = 0;
  return std::ifstream(path) >> bytes ? bytes : kUnlimited;
}

// The smallest limit among the control groups (version 2 or 1) of this process.
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

// Receives libtorch's report of each tensor that is allocated or freed.
struct MemoryReport final : c10::MemoryReportingInfoBase {
  explicit MemoryReport(std::int64_t most) : limit(most) {}

  void reportMemoryUsage(void* block, std::int64_t size, std::size_t, std::size_t, c10::Device of) override {
    if (!of.is_cpu()) return;
    if (size < 0) {  // the tensor may be older than the scope, so its size is unknown
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

  // The block exists already, but has no owner yet.
  [[noreturn]] void refuse(void* block, std::int64_t size) const {
    if (const c10::DeleterFnPtr free = c10::GetCPUAllocator()->raw_deleter()) free(block);
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__},
                                join("out of memory: ", size, " bytes more than the ", now, " of this batch are above ",
                                     "the limit of ", limit));
  }

  const std::int64_t limit;
  std::int64_t now = 0, peak = 0;
  std::unordered_map<void*, std::int64_t> blocks;
};

// Null if libtorch's profiler is running.
std::shared_ptr<MemoryReport> report_of_this_thread(std::int64_t limit) {
  if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE)) return nullptr;
  return std::make_shared<MemoryReport>(limit);
}

class HostMemoryScope final : public MemoryScope {
 public:
  explicit HostMemoryScope(std::int64_t limit) : report_(report_of_this_thread(limit)) {
    if (report_) guard_.emplace(c10::DebugInfoKind::PROFILER_STATE, report_);
  }
  std::int64_t peak() const override { return report_ ? report_->peak : 0; }

 private:
  const std::shared_ptr<MemoryReport> report_;
  std::optional<c10::DebugInfoGuard> guard_;
};

}  // namespace

std::int64_t CpuSupport::available_memory(at::Device /*device*/) const {
  const std::int64_t left = std::min(control_group_limit() - resident_memory(), machine_available());
  return std::max<std::int64_t>(0, left) + static_cast<std::int64_t>(cpu_memory().cached);
}

void CpuSupport::release_cached_memory(at::Device /*device*/) const { empty_cpu_cache(); }

std::unique_ptr<MemoryScope> CpuSupport::count_memory(at::Device /*device*/, std::int64_t limit) const {
  return std::make_unique<HostMemoryScope>(limit);
}

}  // namespace composer

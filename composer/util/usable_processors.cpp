#include "composer/util/usable_processors.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

namespace composer::util {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoQuota = std::numeric_limits<std::int64_t>::max();

std::int64_t rounded_up(std::int64_t quota, std::int64_t period) {
  return quota > 0 && period > 0 ? (quota - 1) / period + 1 : kNoQuota;
}

// Parses "QUOTA PERIOD", or "max PERIOD".
std::int64_t read_quota(const fs::path& file) {
  std::int64_t quota = 0, period = 0;
  return std::ifstream(file) >> quota >> period ? rounded_up(quota, period) : kNoQuota;
}

// Version 1 of control groups has a file for each number, and -1 for no quota.
std::int64_t read_quota_of_version_1(const fs::path& folder) {
  std::int64_t quota = 0, period = 0;
  std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
  std::ifstream(folder / "cpu.cfs_period_us") >> period;
  return rounded_up(quota, period);
}

}  // namespace

std::int64_t usable_processors(const fs::path& root) {
  const fs::path all = root / "sys/fs/cgroup";
  std::int64_t processors = std::max(1U, std::thread::hardware_concurrency());
  for (const char* folder : {"cpu", "cpu,cpuacct"})
    processors = std::min(processors, read_quota_of_version_1(all / folder));
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;
    for (fs::path group = line.substr(4);; group = group.parent_path()) {
      processors = std::min(processors, read_quota(all / group / "cpu.max"));
      if (group.empty()) break;
    }
  }
  return processors;
}

}  // namespace composer::util

// The values that MemoryMonitor logs, computed without a trainer. Internal.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

namespace composer::callbacks {

// One of the statistics that torch.cuda.memory_stats() lists, by its name in that list.
struct DeviceStatistic {
  using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;
  using StatArray = c10::CachingAllocator::StatArray;
  using Stat = c10::CachingAllocator::Stat;

  // Throws ConfigError for an unknown name.
  explicit DeviceStatistic(std::string_view name);
  std::int64_t of(const DeviceStats& stats) const;

  bool in_bytes = false;

 private:
  // Null if the statistic is not a count; exactly one of the three pointers is set.
  std::int64_t DeviceStats::*count_ = nullptr;
  Stat DeviceStats::*single_ = nullptr;
  StatArray DeviceStats::*array_ = nullptr;
  std::size_t pool_ = 0;                // index in array_
  std::int64_t Stat::*part_ = nullptr;  // null if the statistic is a count
};

// Bytes as gigabytes, rounded to five significant digits.
double gigabytes(std::int64_t bytes);

struct ProcessMemory {
  std::int64_t resident = 0, peak_resident = 0;  // bytes
};

// The memory of this process. Reads /proc/self/statm and getrusage(), which takes a few microseconds;
// /proc/self/status, which has both numbers, takes ten times as long.
class ProcessMemoryReader {
 public:
  ProcessMemoryReader();
  std::optional<ProcessMemory> read();  // nullopt: the system does not provide it

 private:
  struct File {
    explicit File(const char* path);
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int descriptor;
  };
  std::optional<std::int64_t> peak_in_status() const;

  const File statm_, status_;
  std::int64_t peak_ = 0;       // the largest value that was read: getrusage() may be some pages behind statm
  std::int64_t inherited_ = 0;  // the peak of the program that started this one, with which getrusage() begins; 0: none
};

}  // namespace composer::callbacks

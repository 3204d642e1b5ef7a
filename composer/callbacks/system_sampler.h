#pragma once
// Samples the load of the processors, memory, disk and network while a profiler records. Internal to Profiler.
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "composer/callbacks/system_readings.h"
#include "composer/core/time.h"
#include "composer/profiler/trace.h"

namespace composer::callbacks {

struct SystemSamplerOptions {
  bool cpu = true, memory = false, disk = false, net = false;
  Seconds interval{0.5};
};

// A background thread takes a sample at each interval. The constructor and stop() also take one each.
class SystemSampler {
 public:
  explicit SystemSampler(const SystemSamplerOptions& options);
  ~SystemSampler();
  SystemSampler(const SystemSampler&) = delete;
  SystemSampler& operator=(const SystemSampler&) = delete;

  std::vector<profiler::Counter> stop();

 private:
  void take();

  const SystemSamplerOptions options_;
  std::optional<CpuTimes> times_;  // of the last sample
  std::vector<profiler::Counter> samples_;
  std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::jthread thread_;  // declared last, because it uses the other members
};

}  // namespace composer::callbacks

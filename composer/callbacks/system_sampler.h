#pragma once
// Load of the processors, memory, disk and network while a profiler records. Internal to Profiler.
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

// From its construction to stop(), a thread of its own takes a sample at each interval; so does each of the two.
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
  std::jthread thread_;  // the last, because it uses the others
};

}  // namespace composer::callbacks

#include "composer/callbacks/system_sampler.h"

#include <string>
#include <utility>

namespace composer::callbacks {
SystemSampler::SystemSampler(const SystemSamplerOptions& options)
    : options_(options), times_(options.cpu ? cpu_times(text_of_file("/proc/stat")) : std::nullopt) {
  take();
  thread_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!wakes_.wait_for(lock, stop, options_.interval, [] { return false; }) && !stop.stop_requested()) take();
  });
}

SystemSampler::~SystemSampler() = default;

std::vector<profiler::Counter> SystemSampler::stop() {
  thread_.request_stop();
  thread_.join();
  take();
  return std::move(samples_);
}

void SystemSampler::take() {
  const std::int64_t now = profiler::now_ns();
  const auto add = [&](const char* name, const Readings& readings) {
    profiler::Counter counter{.name = name, .at_ns = now};
    for (const auto& [key, value] : readings)
      counter.values.emplace_back(key, std::visit([](auto number) { return static_cast<double>(number); }, value));
    if (!counter.values.empty()) samples_.push_back(std::move(counter));
  };
  if (options_.cpu) {
    const auto times = cpu_times(text_of_file("/proc/stat"));
    if (times_ && times && times->total > times_->total)
      add("cpu", {{"cpu_percentage", busy_percentage(*times_, *times)}});
    times_ = times;
  }
  Readings readings;
  if (options_.memory) add_memory(readings, text_of_file("/proc/meminfo"));
  add("memory", std::exchange(readings, {}));
  if (options_.disk) add_disk(readings, "/");
  add("disk", std::exchange(readings, {}));
  if (options_.net) add_network(readings, text_of_file("/proc/net/dev"));
  add("network", readings);
}

}  // namespace composer::callbacks

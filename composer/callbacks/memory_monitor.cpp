#include "composer/callbacks/memory_monitor.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "composer/callbacks/memory_statistics.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/device/device_support.h"
#include "composer/util/tune_process.h"

namespace composer::callbacks {
namespace {

// The entries of Composer's table, in its order.
std::vector<std::pair<std::string, std::string>> composers_keys() {
  return {{"allocated_bytes.all.current", "current_allocated_mem"},
          {"active_bytes.all.current", "current_active_mem"},
          {"inactive_split_bytes.all.current", "current_inactive_mem"},
          {"reserved_bytes.all.current", "current_reserved_mem"},
          {"allocated_bytes.all.peak", "peak_allocated_mem"},
          {"active_bytes.all.peak", "peak_active_mem"},
          {"inactive_split_bytes.all.peak", "peak_inactive_mem"},
          {"reserved_bytes.all.peak", "peak_reserved_mem"},
          {"num_alloc_retries", "alloc_retries"}};
}

std::string with_gigabytes(std::string name) {
  const std::string_view bytes = "bytes";
  for (std::size_t at = 0; (at = name.find(bytes, at)) != std::string::npos; at += bytes.size() + 4)
    name.insert(at, "giga");
  return name;
}

std::vector<Option<MemoryMonitorOptions>> memory_monitor_options() {
  using O = MemoryMonitorOptions;
  return all_options(option("batch_log_interval", &O::batch_log_interval).at_least(1),
                     part("memory_keys", &O::memory_keys, "names"));
}

}  // namespace

struct MemoryMonitor::Impl {
  struct Logged {
    DeviceStatistic statistic;
    std::string key;
  };

  explicit Impl(const MemoryMonitorOptions& given) : options(given), interval(given.batch_log_interval) {
    for (const auto& [name, logged_as] : options.memory_keys) {
      if (logged_as.empty()) throw ConfigError("MemoryMonitor: memory_keys: the name for ", name, " is empty");
      add(name, with_gigabytes(logged_as));
    }
    if (!logged.empty()) return;
    for (const auto& [name, logged_as] : composers_keys()) add(name, logged_as);
  }
  void add(const std::string& name, const std::string& logged_as) {
    logged.push_back({DeviceStatistic(name), "memory/" + logged_as});
  }

  void log_device(c10::DeviceAllocator& allocator, c10::Device device, Logger& logger) {
    const auto stats = allocator.getDeviceStats(device.index());
    for (const auto& [statistic, key] : logged) {
      const std::int64_t value = statistic.of(stats);
      records.push_back({key, statistic.in_bytes ? LogValue(gigabytes(value)) : LogValue(value)});
    }
    logger.log_metrics(records);
  }

  void log_process(Logger& logger) {
    if (const auto memory = process.read()) {
      records.push_back({"memory/current_resident_mem", gigabytes(memory->resident)});
      records.push_back({"memory/peak_resident_mem", gigabytes(memory->peak_resident)});
    }
    if (const auto [used, cached] = cpu_memory(); used + cached > 0) {
      records.push_back({"memory/current_allocated_mem", gigabytes(static_cast<std::int64_t>(used))});
      records.push_back({"memory/current_reserved_mem", gigabytes(static_cast<std::int64_t>(used + cached))});
    }
    if (!records.empty()) logger.log_metrics(records);
  }

  const MemoryMonitorOptions options;
  std::int64_t interval;
  std::vector<Logged> logged;  // statistics of a device
  ProcessMemoryReader process;
  std::vector<LogEntry> records;  // reuses its memory
};

MemoryMonitor::MemoryMonitor(MemoryMonitorOptions options)
    : impl_(std::make_unique<Impl>(checked("MemoryMonitor", std::move(options), memory_monitor_options()))) {}
MemoryMonitor::~MemoryMonitor() = default;
MemoryMonitor::MemoryMonitor(MemoryMonitor&&) noexcept = default;

void MemoryMonitor::init(const State& state, Logger&) {
  if (!state.device.is_cpu() && !device_support(state.device.type()).allocator(state.device))
    warn(join("MemoryMonitor: the allocator of ", state.device, " has no statistics, so nothing is logged"));
}

void MemoryMonitor::after_train_batch(const State& state, Logger& logger) {
  if (logger.empty() || (state.timestamp.batch + 1) % impl_->interval != 0) return;  // this batch is not counted yet
  impl_->records.clear();
  if (auto* const allocator = device_support(state.device.type()).allocator(state.device))
    impl_->log_device(*allocator, state.device, logger);
  else if (state.device.is_cpu())
    impl_->log_process(logger);
}

StateDict MemoryMonitor::local_hparams() const { return describe(impl_->options, memory_monitor_options()); }

namespace entries {

Entry<Callbacks> memory_monitor() {
  return entry<MemoryMonitor>("memory_monitor", "Logs how much memory is in use", memory_monitor_options());
}

}  // namespace entries
}  // namespace composer::callbacks

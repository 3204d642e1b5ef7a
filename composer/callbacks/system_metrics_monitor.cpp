#include "composer/callbacks/system_metrics_monitor.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "composer/callbacks/system_readings.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/device/device_support.h"

namespace composer::callbacks {
namespace {

std::unique_ptr<DeviceReader> reader_of(c10::Device device) {
  try {
    return device_support(device.type()).reader(device);
  } catch (const std::exception& error) {
    warn(join("SystemMetricsMonitor: no GPU metrics are logged: ", describe(error)));
  }
  return nullptr;
}

// Adds the rank to the keys of a GPU's values, as Composer does.
Readings with_rank(const Readings& readings, int rank, bool log_all_data) {
  const std::vector<const char*> prefixes = log_all_data ? std::vector{""} : std::vector{"min_", "max_"};
  Readings all;
  for (const char* prefix : prefixes)
    for (const auto& [key, value] : readings) all.push_back({join(prefix, key, "_rank_", rank), value});
  return all;
}

std::vector<Option<SystemMetricsMonitorOptions>> system_metrics_monitor_options() {
  using O = SystemMetricsMonitorOptions;
  return all_options(option("log_all_data", &O::log_all_data),
                     option("sample_interval", &O::sample_interval).from_to(0.001, 86'400, "seconds"));
}

}  // namespace

// Keeps the newest sample, which a background thread replaces.
class SystemMetricsMonitor::Sampler {
 public:
  Sampler(const SystemMetricsMonitorOptions& options, c10::Device device, int rank)
      : options_(options), rank_(rank), gpu_(reader_of(device)), times_(cpu_times(text_of_file("/proc/stat"))) {}

  // Logs a sample that was not logged before, if there is one. This function takes the first sample, the thread all
  // others.
  void log(Logger& logger) {
    if (!thread_.joinable()) {
      take();
      thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    }
    if (!is_new_.load(std::memory_order_relaxed)) return;
    {
      const std::lock_guard lock(mutex_);
      is_new_ = false;
      logged_.swap(newest_);
    }
    records_.clear();
    for (const auto& [key, value] : logged_) {
      const auto* whole = std::get_if<std::int64_t>(&value);
      records_.push_back({key, whole ? LogValue(*whole) : LogValue(std::get<double>(value))});
    }
    logger.log_metrics(records_);
  }

 private:
  void run(const std::stop_token& stop) {
    std::mutex waiting;
    std::condition_variable_any wakes;
    std::unique_lock lock(waiting);
    while (!wakes.wait_for(lock, stop, options_.sample_interval, [] { return false; }) && !stop.stop_requested())
      take();
  }

  void take() {
    Readings sample;
    if (gpu_) {
      gpu_->add(sample);
      sample = with_rank(sample, rank_, options_.log_all_data);
    }
    const auto now = cpu_times(text_of_file("/proc/stat"));
    if (times_ && now) sample.push_back({"cpu_percentage", busy_percentage(*times_, *now)});
    times_ = now;
    add_memory(sample, text_of_file("/proc/meminfo"));
    add_disk(sample, "/");
    add_network(sample, text_of_file("/proc/net/dev"));
    const std::lock_guard lock(mutex_);
    newest_ = std::move(sample);
    is_new_ = true;
  }

  const SystemMetricsMonitorOptions options_;
  const int rank_;
  const std::unique_ptr<DeviceReader> gpu_;
  std::optional<CpuTimes> times_;  // of the last sample
  Readings logged_;                // the sample that is logged
  std::vector<LogEntry> records_;  // reuses its memory
  std::mutex mutex_;               // guards newest_
  Readings newest_;
  std::atomic<bool> is_new_ = false;
  std::jthread thread_;  // declared last, because it uses the other members
};

SystemMetricsMonitor::SystemMetricsMonitor(SystemMetricsMonitorOptions options)
    : options_(checked("SystemMetricsMonitor", options, system_metrics_monitor_options())) {}
SystemMetricsMonitor::~SystemMetricsMonitor() = default;
SystemMetricsMonitor::SystemMetricsMonitor(SystemMetricsMonitor&&) noexcept = default;

void SystemMetricsMonitor::init(const State& state, Logger&) {
  sampler_ = std::make_unique<Sampler>(options_, state.device, state.rank);
}
void SystemMetricsMonitor::batch_start(const State&, Logger& logger) { sampler_->log(logger); }
void SystemMetricsMonitor::eval_batch_start(const State&, Logger& logger) { sampler_->log(logger); }
void SystemMetricsMonitor::predict_batch_start(const State&, Logger& logger) { sampler_->log(logger); }
void SystemMetricsMonitor::close(const State&, Logger&) { sampler_.reset(); }

StateDict SystemMetricsMonitor::local_hparams() const { return describe(options_, system_metrics_monitor_options()); }

namespace entries {

Entry<Callbacks> system_metrics_monitor() {
  return entry<SystemMetricsMonitor>("system_metrics_monitor", "Logs how busy the machine is",
                                     system_metrics_monitor_options());
}

}  // namespace entries
}  // namespace composer::callbacks

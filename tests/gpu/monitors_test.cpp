// Callbacks that read a GPU.
#include <filesystem>

#include "composer/callbacks/memory_monitor.h"
#include "composer/callbacks/memory_snapshot.h"
#include "composer/callbacks/profiler.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/callbacks/system_metrics_monitor.h"
#include "composer/device/cuda/gpu_reader.h"
#include "composer/device/device_support.h"
#include "composer/loggers/in_memory_logger.h"
#include "tests/gpu/gpu.h"
#include "tests/support/sandbox.h"
#include "tests/support/warnings.h"

namespace composer::test::gpu_monitors_test {
namespace {

struct Logged {
  std::shared_ptr<loggers::InMemoryLogger> values = std::make_shared<loggers::InMemoryLogger>();
  std::string warnings;
  double last(const std::string& key) const { return values->most_recent(key).number(); }
};

Logged run_with(const Callbacks& list, const Net& net, const char* duration, Precision precision = Precision::FP32) {
  Logged logged;
  const Warnings warnings;
  TrainerOptions options = options_of(net, kGpu);
  options.max_duration = Time::parse(duration);
  options.callbacks = list;
  options.loggers = {logged.values};
  options.precision = precision;
  trained(std::move(options));
  for (const std::string& text : warnings.texts) logged.warnings += text + "; ";
  return logged;
}

TEST_CASE("MemoryMonitor logs what the allocator of a GPU has given" * on_gpu()) {
  const Logged logged = run_with({callbacks::MemoryMonitor()}, nets()[1], "12ba");
  CHECK(logged.warnings == "");
  for (const char* key : {"memory/current_allocated_mem", "memory/current_active_mem", "memory/current_reserved_mem",
                          "memory/peak_allocated_mem", "memory/peak_active_mem", "memory/peak_reserved_mem"}) {
    CAPTURE(std::string(key));
    CHECK(logged.last(key) > 0.001);
    CHECK(logged.last(key) < 10);
  }
  CHECK(logged.last("memory/peak_allocated_mem") >= logged.last("memory/current_allocated_mem"));
  CHECK(logged.last("memory/alloc_retries") == 0);
}

TEST_CASE("SystemMetricsMonitor logs load, temperature and power of a GPU" * on_gpu()) {
  const Logged logged = run_with(
      {callbacks::SystemMetricsMonitor({.log_all_data = true, .sample_interval = Seconds(0.05)})}, nets()[1], "400ba");
  CHECK(logged.warnings == "");
  CHECK(logged.last("gpu_temperature_C_rank_0") > 10);
  CHECK(logged.last("gpu_temperature_C_rank_0") < 110);
  CHECK(logged.last("gpu_power_usage_W_rank_0") > 10);
  CHECK(logged.last("gpu_percentage_rank_0") >= 0);
  CHECK(logged.last("memory_percentage_rank_0") >= 0);
}

TEST_CASE("NVML's GPU is the one of CUDA, and a choice of tune is kept for GPUs of its name" * on_gpu()) {
  const at::Device device(at::kCUDA, 0);
  const std::string name = cuda::gpu_reader_of(device)->name();
  CHECK(name != "");
  CHECK(device_support(at::kCUDA).name_of(device).starts_with(name + ", "));
}

TEST_CASE("SpeedMonitor logs the share of a GPU's peak rate that a run reaches" * on_gpu()) {
  for (const Precision precision : {Precision::FP32, Precision::AMP_BF16}) {
    const Logged logged = run_with({callbacks::SpeedMonitor({.window_size = 5})}, nets()[2], "40ba", precision);
    CHECK(logged.warnings == "");
    std::cout << "mfu in " << to_string(precision) << ": " << logged.last("throughput/device/mfu") << ", "
              << logged.last("throughput/batches_per_sec") << " batches/s" << std::endl;
    CHECK(logged.last("throughput/device/mfu") > 0);
    CHECK(logged.last("throughput/device/mfu") < 1);
  }
}

TEST_CASE("MemorySnapshot writes the history of a GPU's allocator" * on_gpu()) {
  const Sandbox sandbox;
  const Logged logged = run_with({callbacks::MemorySnapshot()}, nets()[1], "12ba");
  CHECK(logged.warnings == "");
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator("."))
    if (entry.path().extension() == ".pickle") bytes += entry.file_size();
  CHECK(bytes > 1000);
}

}  // namespace
}  // namespace composer::test::gpu_monitors_test

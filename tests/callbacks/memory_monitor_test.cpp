#include "composer/callbacks/memory_monitor.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "composer/callbacks/memory_statistics.h"
#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_run.h"

namespace composer::memory_monitor_test {

using callbacks::DeviceStatistic;
using callbacks::gigabytes;
using callbacks::MemoryMonitor;
using callbacks::ProcessMemoryReader;
using test::FakeRun;

TEST_CASE("MemoryMonitor on the CPU logs the memory of the process in gigabytes") {
  MemoryMonitor monitor;
  FakeRun run;
  monitor.run_event(Event::AFTER_TRAIN_BATCH, run.state, run.logger);
  const double before = run.log.values.at("memory/current_resident_mem").front();
  const double peak = run.log.values.at("memory/peak_resident_mem").front();
  CHECK(before > 0.01);
  CHECK(before < 1000);
  CHECK(peak >= before - 0.002);  // the kernel counts the pages of each thread in lots

  const at::Tensor used = at::ones({256, 1 << 20}, at::kByte);  // 0.268 GB
  monitor.run_event(Event::AFTER_TRAIN_BATCH, run.state, run.logger);
  CHECK(run.log.values.at("memory/current_resident_mem").back() > before + 0.2);
  CHECK(run.log.values.at("memory/peak_resident_mem").back() > before + 0.2);
}

TEST_CASE("The memory of the process is what /proc/self/status says, whatever program started it") {
  const auto in_status = [](const std::string& name) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with(name)) return std::stoll(line.substr(name.size())) * 1024;
    return 0LL;
  };
  ProcessMemoryReader reader;
  const auto memory = reader.read();
  REQUIRE(memory);
  CHECK(std::abs(memory->resident - in_status("VmRSS:")) < 20'000'000);
  CHECK(std::abs(memory->peak_resident - in_status("VmHWM:")) < 20'000'000);
}

TEST_CASE("Gigabytes have five significant digits") {
  CHECK(gigabytes(123'456'789) == 0.12346);
  CHECK(gigabytes(1'234'567'890'000) == 1234.6);
  CHECK(gigabytes(1'000'000'000) == 1);
  CHECK(gigabytes(0) == 0);
  CHECK(gigabytes(512) == 5.12e-7);
}

TEST_CASE("A statistic of a device is found by its name in torch.cuda.memory_stats()") {
  DeviceStatistic::DeviceStats stats;
  stats.allocated_bytes[0].current = 1;
  stats.allocated_bytes[1].peak = 2;
  stats.reserved_bytes[2].freed = 3;
  stats.inactive_split[0].allocated = 4;
  stats.oversize_segments.current = 5;
  stats.num_alloc_retries = 6;
  CHECK(DeviceStatistic("allocated_bytes.all.current").of(stats) == 1);
  CHECK(DeviceStatistic("allocated_bytes.small_pool.peak").of(stats) == 2);
  CHECK(DeviceStatistic("reserved_bytes.large_pool.freed").of(stats) == 3);
  CHECK(DeviceStatistic("inactive_split.all.allocated").of(stats) == 4);
  CHECK(DeviceStatistic("oversize_segments.current").of(stats) == 5);
  CHECK(DeviceStatistic("num_alloc_retries").of(stats) == 6);
  CHECK(DeviceStatistic("allocated_bytes.all.current").in_bytes);
  CHECK_FALSE(DeviceStatistic("inactive_split.all.allocated").in_bytes);
}

TEST_CASE("MemoryMonitor rejects names that torch.cuda.memory_stats() does not have") {
  for (const char* name : {"", "allocated", "allocated_bytes", "allocated_bytes.all", "allocated_bytes.all.most",
                           "allocated_bytes.both.peak", "num_ooms.all", "allocated_bytes.all.peak.now"}) {
    CAPTURE(name);
    CHECK_THROWS_AS(MemoryMonitor({.memory_keys = {{name, "memory"}}}), ConfigError);
  }
  CHECK_THROWS_WITH_AS(MemoryMonitor({.memory_keys = {{"num_ooms", ""}}}),
                       "MemoryMonitor: memory_keys: the name for num_ooms is empty", ConfigError);
  CHECK_NOTHROW(MemoryMonitor({.memory_keys = {{"num_ooms", "ooms"}, {"active_bytes.all.peak", "peak_bytes"}}}));
}

TEST_CASE("MemoryMonitor logs every batch_log_interval-th batch") {
  MemoryMonitor monitor({.batch_log_interval = 3});
  FakeRun run;
  for (int i = 0; i < 7; ++i) {
    monitor.run_event(Event::AFTER_TRAIN_BATCH, run.state, run.logger);
    run.batch(monitor);
  }
  CHECK(run.log.calls.size() == 2);
  CHECK_THROWS_WITH_AS(MemoryMonitor({.batch_log_interval = 0}),
                       "MemoryMonitor: batch_log_interval must be >= 1, got 0", ConfigError);
}

}  // namespace composer::memory_monitor_test

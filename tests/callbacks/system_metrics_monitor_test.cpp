#include "composer/callbacks/system_metrics_monitor.h"

#include <set>

#include "composer/callbacks/system_readings.h"
#include "composer/core/error.h"
#include "composer/core/on.h"
#include "composer/loggers/in_memory_logger.h"
#include "tests/support/by_key.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::system_metrics_monitor_test {

using callbacks::SystemMetricsMonitor;
using test::by_key;

TEST_CASE("Processors are busy for the ticks that are neither idle nor waiting for a disk") {
  const auto from = callbacks::cpu_times("cpu  100 10 50 800 40 0 0 0 7 7\ncpu0 1 1 1 1\n");
  const auto to = callbacks::cpu_times("cpu  130 10 60 840 60 0 0 0 9 9\ncpu0 1 1 1 1\n");
  REQUIRE(from);
  REQUIRE(to);
  CHECK(from->total == 1000);
  CHECK(callbacks::busy_percentage(*from, *to) == 40);
  CHECK(callbacks::busy_percentage(*from, *from) == 0);
  CHECK_FALSE(callbacks::cpu_times(""));
  CHECK_FALSE(callbacks::cpu_times("intr 5"));
}

TEST_CASE("Memory is read in bytes") {
  Readings readings;
  callbacks::add_memory(readings,
                        "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  700 kB\nBuffers: 50 kB\nCached: 400 kB\n"
                        "SwapCached: 9 kB\nActive: 300 kB\nActive(anon): 8 kB\nInactive: 200 kB\nShmem: 20 kB\n"
                        "Slab: 80 kB\nSReclaimable: 60 kB\n");
  CHECK(by_key(readings) == std::map<std::string, double>{{"cpu_memory_total", 1000 * 1024},
                                                          {"cpu_memory_available", 700 * 1024},
                                                          {"cpu_memory_percent", 30},
                                                          {"cpu_memory_used", 390 * 1024},
                                                          {"cpu_memory_free", 100 * 1024},
                                                          {"cpu_memory_active", 300 * 1024},
                                                          {"cpu_memory_inactive", 200 * 1024},
                                                          {"cpu_memory_buffers", 50 * 1024},
                                                          {"cpu_memory_cached", 460 * 1024},
                                                          {"cpu_memory_shared", 20 * 1024},
                                                          {"cpu_memory_slab", 80 * 1024}});
}

TEST_CASE("The counts of all network interfaces are added") {
  Readings readings;
  callbacks::add_network(
      readings,
      "Inter-|   Receive            |  Transmit\n face |bytes    packets errs drop|bytes\n"
      "    lo:  100  1 2 3 0 0 0 0  100  5 6 7 0 0 0 0\n  eth0: 1000 10 0 0 0 0 0 0 2000 20 0 0 0 0 0 0\n");
  CHECK(by_key(readings) == std::map<std::string, double>{{"network_bytes_sent", 2100},
                                                          {"network_bytes_recv", 1100},
                                                          {"network_packets_sent", 25},
                                                          {"network_packets_recv", 11},
                                                          {"network_errin", 2},
                                                          {"network_errout", 6},
                                                          {"network_dropin", 3},
                                                          {"network_dropout", 7}});
}

TEST_CASE("The used and the free part of a disk are within its size") {
  Readings readings;
  callbacks::add_disk(readings, "/");
  auto disk = by_key(readings);
  CHECK(disk["disk_memory_total"] > 0);
  CHECK(disk["disk_memory_used"] + disk["disk_memory_free"] <= disk["disk_memory_total"]);
  CHECK(disk["disk_memory_percent"] >= 0);
  CHECK(disk["disk_memory_percent"] <= 100);
}

TEST_CASE("SystemMetricsMonitor logs a sample once, at the first batch after it") {
  TrainerOptions options = test::tiny_options();
  options.eval_dataloader = test::tiny_loader(8, 4);
  options.callbacks = {SystemMetricsMonitor({.sample_interval = Seconds(86400)})};
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  options.loggers = {log};
  Trainer(std::move(options)).fit();
  for (const char* key : {"cpu_percentage", "cpu_memory_total", "disk_memory_total", "network_bytes_recv"}) {
    CAPTURE(key);
    const auto series = log->get_timeseries(key);
    REQUIRE(series.size() == 1);
    CHECK(series.front().timestamp.batch == 0);
  }
  CHECK(log->most_recent("cpu_memory_total").number() > 1e8);
}

TEST_CASE("SystemMetricsMonitor logs the samples of its thread while the run goes on") {
  TrainerOptions options = test::tiny_options();
  options.max_duration = "10000000ba";
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  options.callbacks = {SystemMetricsMonitor({.sample_interval = Seconds(0.001)}),
                       on(Event::BATCH_END, [&](const State& state) {
                         if (log->get_timeseries("cpu_percentage").size() == 3) state.stop.ask("seen");
                       })};
  options.loggers = {log};
  Trainer trainer(std::move(options));
  trainer.fit();
  CHECK(log->get_timeseries("cpu_percentage").size() == 3);
  CHECK(trainer.state().stop.why() == "seen");
}

TEST_CASE("SystemMetricsMonitor logs in evaluations and predictions without a fit") {
  TrainerOptions options = test::tiny_options();
  options.eval_dataloader = test::tiny_loader(8, 4);
  options.callbacks = {SystemMetricsMonitor({.sample_interval = Seconds(86400)})};
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  options.loggers = {log};
  Trainer trainer(std::move(options));
  trainer.eval();
  CHECK(log->get_timeseries("cpu_memory_used").size() == 1);
}

TEST_CASE("SystemMetricsMonitor rejects an interval of no time") {
  CHECK_THROWS_WITH_AS(SystemMetricsMonitor({.sample_interval = Seconds(0)}),
                       "SystemMetricsMonitor: sample_interval must be from 0.001 to 86400 seconds, got 0", ConfigError);
}

}  // namespace composer::system_metrics_monitor_test

// What a trainer asks of its device, and that it asks nobody else: the CPU under another name.
#include "composer/device/device_support.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>

#include <ATen/Context.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/profiler/orchestration/observer.h>

#include "composer/callbacks/memory_monitor.h"
#include "composer/callbacks/memory_snapshot.h"
#include "composer/callbacks/profiler.h"
#include "composer/callbacks/speed_monitor.h"
#include "composer/callbacks/system_metrics_monitor.h"
#include "composer/core/error.h"
#include "composer/device/allocator_history.h"
#include "composer/device/cpu/cpu.h"
#include "composer/device/device_graph.h"
#include "composer/device/device_reader.h"
#include "composer/dist/accelerator.h"
#include "composer/loggers/in_memory_logger.h"
#include "tests/support/doctest.h"
#include "tests/support/in_ranks.h"
#include "tests/support/machines.h"
#include "tests/support/places.h"
#include "tests/support/sandbox.h"
#include "tests/support/supported_by.h"
#include "tests/support/tiny.h"
#include "tests/support/warnings.h"

namespace composer::test::device_support_test {
namespace {

using Names = std::set<std::string>;

struct FakeLoad final : DeviceReader {
  void add(Readings& readings) const override { readings.push_back({"fake_load", std::int64_t{7}}); }
};

struct FakeSnapshot final : AllocatorHistory {
  void start(std::int64_t) override {}
  std::string snapshot() override { return "of the fake"; }
  void stop() override {}
};

// Steps are computed while they are recorded, and are not repeated.
struct OnceGraph final : DeviceGraph {
  void capture_begin() override {}
  void capture_end() override {}
  void replay() override {}
};

// Has something of each kind, and notes what it is asked for.
class FakeSupport final : public CpuSupport {
 public:
  Names asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }

  bool is_available() const override { return noted(__func__, true); }
  int count() const override { return noted(__func__, 2); }
  void check(at::Device) const override { note(__func__); }
  at::Device of_rank(at::Device device, int) const override { return noted(__func__, device); }
  std::string key_of_ranks() const override { return noted(__func__, "num_fakes_per_node"); }
  std::string name_of(at::Device) const override { return noted(__func__, "Fake 9000"); }
  std::optional<PeakRate> peak_rate(at::Device, Precision) const override {
    return noted(__func__, PeakRate{.device = "Fake 9000", .flops = 1e9});
  }
  std::unique_ptr<DeviceReader> reader(at::Device) const override {
    note(__func__);
    return std::make_unique<FakeLoad>();
  }
  c10::DeviceAllocator* allocator(at::Device) const override { return noted(__func__, nullptr); }
  std::int64_t available_memory(at::Device device) const override {
    return noted(__func__, CpuSupport::available_memory(device));
  }
  void release_cached_memory(at::Device device) const override {
    note(__func__);
    CpuSupport::release_cached_memory(device);
  }
  std::unique_ptr<MemoryScope> count_memory(at::Device device, std::int64_t limit) const override {
    note(__func__);
    return CpuSupport::count_memory(device, limit);
  }
  bool pins_memory() const override { return noted(__func__, false); }
  std::unique_ptr<AllocatorHistory> allocator_history() const override {
    note(__func__);
    return std::make_unique<FakeSnapshot>();
  }
  std::optional<at::Float32Backend> tf32_backend() const override { return noted(__func__, std::nullopt); }
  void prepare_determinism() const override { note(__func__); }
  std::string reason_against_graphs(at::Device) const override { return noted(__func__, ""); }
  std::unique_ptr<DeviceGraph> make_graph() const override {
    note(__func__);
    return std::make_unique<OnceGraph>();
  }
  std::optional<CollectivesLibrary> collectives() const override {
    return noted(__func__, CollectivesLibrary{.file = "libno_such_fake.so", .maker = "FCL", .needs = "it needs luck"});
  }
  std::optional<torch::profiler::impl::ActivityType> kernel_activity() const override {
    return noted(__func__, std::nullopt);
  }

 private:
  void note(const char* name) const {
    const std::lock_guard lock(mutex_);
    asked_.insert(name);
  }
  template <class T>
  T noted(const char* name, T answer) const {
    note(name);
    return answer;
  }

  mutable std::mutex mutex_;
  mutable Names asked_;
};

// A trainer that is told no device.
TrainerOptions undecided() {
  TrainerOptions options = tiny_options();
  options.device = std::nullopt;
  return options;
}

Names with(Names names, const Names& more) {
  names.insert(more.begin(), more.end());
  return names;
}

// Those that every trainer asks.
const Names kAlways = {"is_available", "check", "key_of_ranks", "tf32_backend"};

// What these options make a trainer ask.
Names asked_by(TrainerOptions options) {
  const FakeSupport fake;
  const SupportedBy supported(at::kCPU, fake);
  Trainer(std::move(options)).fit();
  return fake.asked();
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Of the class's declaration.
Names virtual_functions() {
  Names names;
  std::ifstream file(repository() / "composer/device/device_support.h");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    inside = (inside || line.starts_with("class DeviceSupport {")) && line != "};";
    const std::size_t open = line.find('(');
    if (!inside || !line.starts_with("  virtual ") || line.find('~') != std::string::npos) continue;
    REQUIRE(open != std::string::npos);
    names.insert(line.substr(line.rfind(' ', open) + 1, open - line.rfind(' ', open) - 1));
  }
  return names;
}

}  // namespace

TEST_CASE("A trainer takes the accelerator that there is, and asks it what it may do with it") {
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = undecided();
  options.loggers = {log};
  CHECK(asked_by(std::move(options)) == kAlways);
  CHECK(log->hyperparameters().contains("num_fakes_per_node"));
}

TEST_CASE("Monitors log what the device says of itself") {
  const Sandbox sandbox;
  const auto log = std::make_shared<loggers::InMemoryLogger>();
  TrainerOptions options = undecided();
  options.loggers = {log};
  options.max_duration = "2ep";
  options.callbacks = {callbacks::MemoryMonitor(), callbacks::SystemMetricsMonitor(),
                       callbacks::SpeedMonitor({.window_size = 1}), callbacks::MemorySnapshot({.folder = "snapshots"})};
  CHECK(asked_by(std::move(options)) == with(kAlways, {"allocator", "reader", "peak_rate", "allocator_history"}));
  CHECK(log->most_recent("min_fake_load_rank_0").number() == 7);
  CHECK(log->most_recent("throughput/device/mfu").number() > 0);
  CHECK(log->most_recent("memory/current_resident_mem").number() > 0);
  std::string snapshot;
  for (const auto& file : std::filesystem::directory_iterator("snapshots")) snapshot = text_of(file.path());
  CHECK(snapshot == "of the fake");
}

TEST_CASE("Profiler asks what the kernels of the device are called") {
  const Sandbox sandbox;
  TrainerOptions options = undecided();
  options.callbacks = {callbacks::Profiler({.print = false})};
  CHECK(asked_by(std::move(options)) == with(kAlways, {"kernel_activity"}));
}

TEST_CASE("A run that shall be repeatable asks for what its device needs for it") {
  TrainerOptions options = undecided();
  options.deterministic_mode = true;
  CHECK(asked_by(std::move(options)) == with(kAlways, {"prepare_determinism"}));
}

TEST_CASE("What .tune has chosen is kept under the name of the device") {
  const Sandbox sandbox;
  const QuietMachine quiet;
  TrainerOptions options = undecided();
  options.tune = true;
  options.tune_cache = "tune.json";
  CHECK(asked_by(std::move(options)) == with(kAlways, {"name_of"}));
  CHECK(text_of("tune.json").find("Fake 9000") != std::string::npos);
}

TEST_CASE("The size of microbatches is chosen by the memory of the device") {
  TrainerOptions options = undecided();
  options.device_train_microbatch_size = "auto";
  CHECK(asked_by(std::move(options)) == with(kAlways, {"available_memory", "count_memory", "release_cached_memory"}));
}

TEST_CASE("A step is recorded by a graph of the device") {
  TrainerOptions options = undecided();
  options.cuda_graph = true;
  const Warnings warnings;
  CHECK(asked_by(std::move(options)) ==
        with(kAlways, {"reason_against_graphs", "make_graph", "release_cached_memory"}));
  CHECK(warnings.texts.empty());
}

TEST_CASE("Each of several ranks asks which device is its own, and whether the host's memory is pinned for it") {
  const FakeSupport fake;
  const SupportedBy supported(at::kCPU, fake);
  in_ranks(2, [](dist::World& world) {
    TrainerOptions options = undecided();
    options.world = std::shared_ptr<dist::World>(std::shared_ptr<void>(), &world);
    Trainer(std::move(options)).fit();
  });
  CHECK(fake.asked() == with(kAlways, {"of_rank", "pins_memory"}));
}

TEST_CASE("Collectives are those of the library that the device names, or an error that says what it needs") {
  const FakeSupport fake;
  const SupportedBy supported(at::kCPU, fake);
  dist::Accelerator accelerator;
  CHECK_THROWS_WITH_AS(accelerator.attach({}, {}, {}, at::Device(at::kCPU, 0), std::chrono::seconds(1)),
                       doctest::Contains("libno_such_fake.so, which has the collectives on GPUs, cannot be loaded"),
                       ConfigError);
  CHECK(fake.asked() == Names{"collectives"});
}

TEST_CASE("Batches in pinned memory are refused where copies from it are no faster") {
  const FakeSupport fake;
  const SupportedBy supported(at::kCPU, fake);
  CHECK_THROWS_WITH_AS(data::in_memory(tiny_data(4), {.batch_size = 4, .pin_memory = true}),
                       doctest::Contains("pin_memory requires a CUDA device"), ConfigError);
}

TEST_CASE("Of each function of a device a test shows who asks it") {
  const Names here =
      with(kAlways, {"allocator", "reader", "peak_rate", "allocator_history", "kernel_activity", "prepare_determinism",
                     "name_of", "available_memory", "count_memory", "release_cached_memory", "reason_against_graphs",
                     "make_graph", "of_rank", "pins_memory", "collectives"});
  CHECK(virtual_functions() == with(here, {"count"}));  // tests/cli/launch_test.cpp
}

TEST_CASE("A device without a folder has nothing of a kind, and says so") {
  const at::Device device(at::kPrivateUse1, 3);
  const DeviceSupport& support = device_support(device.type());
  CHECK_FALSE(support.is_available());
  CHECK_NOTHROW(support.check(device));
  CHECK(support.of_rank(device, 1) == device);
  CHECK(support.name_of(device) == "privateuseone:3");
  CHECK_FALSE(support.peak_rate(device, Precision::FP32));
  CHECK_FALSE(support.reader(device));
  CHECK_FALSE(support.pins_memory());
  CHECK_FALSE(support.allocator_history());
  CHECK_FALSE(support.tf32_backend());
  CHECK(support.reason_against_graphs(device) == "it is for CUDA devices, and the device is privateuseone:3");
  CHECK_FALSE(support.make_graph());
  CHECK_FALSE(support.collectives());
  CHECK_FALSE(support.kernel_activity());
}

TEST_CASE("A GPU is one of CUDA's, with the number of its rank, or an error that names it") {
  const DeviceSupport& support = device_support(at::kCUDA);
  CHECK(support.is_available() == at::hasCUDA());
  CHECK(support.of_rank(at::Device(at::kCUDA), 3) == at::Device(at::kCUDA, 3));
  CHECK(support.of_rank(at::Device(at::kCUDA, 1), 3) == at::Device(at::kCUDA, 1));
  CHECK(support.key_of_ranks() == "num_gpus_per_node");
  CHECK(support.pins_memory());
  CHECK(support.tf32_backend() == at::Float32Backend::CUDA);
  CHECK(support.kernel_activity() == torch::profiler::impl::ActivityType::CUDA);
  CHECK(std::string(support.collectives()->file) == "libcomposer_nccl.so");
  CHECK(support.reason_against_graphs(at::kCUDA).empty() == (support.make_graph() != nullptr));
  CHECK_THROWS_WITH_AS(support.check(at::Device(at::kCUDA, 100)),
                       "device: cuda:100 was asked for, and libtorch does not find that CUDA device", ConfigError);
}

}  // namespace composer::test::device_support_test

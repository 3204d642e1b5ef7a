#include "composer/device/device_support.h"

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include "composer/core/error.h"
#include "composer/device/allocator_history.h"
#include "composer/device/device_graph.h"
#include "composer/device/device_reader.h"
#include "composer/device/side_stream.h"

namespace composer {
namespace {

constexpr auto kAllPools = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// Of a device whose allocator has no statistics.
class NotCounted final : public MemoryScope {
 public:
  std::int64_t peak() const override { return 0; }
};

// Uses the statistics of libtorch's allocator.
class AllocatorScope final : public MemoryScope {
 public:
  AllocatorScope(c10::DeviceAllocator& allocator, at::Device device)
      : allocator_(allocator), index_(with_index(device).index()) {
    allocator_.resetPeakStats(index_);
    before_ = allocated().current;
  }
  std::int64_t peak() const override { return allocated().peak - before_; }

 private:
  c10::CachingAllocator::Stat allocated() const { return allocator_.getDeviceStats(index_).allocated_bytes[kAllPools]; }

  c10::DeviceAllocator& allocator_;
  const at::DeviceIndex index_;
  std::int64_t before_ = 0;
};

}  // namespace

bool DeviceSupport::is_available() const { return false; }
int DeviceSupport::count() const { return 0; }
void DeviceSupport::check(at::Device /*device*/) const {}
at::Device DeviceSupport::of_rank(at::Device device, int /*local_rank*/) const { return device; }
std::string DeviceSupport::key_of_ranks() const { return "num_cpus_per_node"; }

std::string DeviceSupport::name_of(at::Device device) const { return device.str(); }
std::optional<PeakRate> DeviceSupport::peak_rate(at::Device /*device*/, Precision /*precision*/) const { return {}; }
std::unique_ptr<DeviceReader> DeviceSupport::reader(at::Device /*device*/) const { return nullptr; }

c10::DeviceAllocator* DeviceSupport::allocator(at::Device device) const {
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

std::int64_t DeviceSupport::available_memory(at::Device device) const {
  c10::DeviceAllocator* const allocator = this->allocator(device);
  if (allocator == nullptr)
    throw ConfigError("device: how much memory ", device.str(), " has is not known; set device_train_microbatch_size");
  const auto stats = allocator->getDeviceStats(with_index(device).index());
  const std::int64_t cached = stats.reserved_bytes[kAllPools].current - stats.allocated_bytes[kAllPools].current;
  return static_cast<std::int64_t>(allocator->getMemoryInfo(with_index(device).index()).first) + cached;
}

void DeviceSupport::release_cached_memory(at::Device device) const {
  if (c10::DeviceAllocator* const allocator = this->allocator(device)) allocator->emptyCache();
}

// The limit is ignored: such a device has a limit of its own.
std::unique_ptr<MemoryScope> DeviceSupport::count_memory(at::Device device, std::int64_t /*limit*/) const {
  c10::DeviceAllocator* const allocator = this->allocator(device);
  if (allocator == nullptr) return std::make_unique<NotCounted>();
  return std::make_unique<AllocatorScope>(*allocator, device);
}

bool DeviceSupport::pins_memory() const { return false; }
std::unique_ptr<AllocatorHistory> DeviceSupport::allocator_history() const { return nullptr; }

std::optional<at::Float32Backend> DeviceSupport::tf32_backend() const { return {}; }
void DeviceSupport::prepare_determinism() const {}

std::string DeviceSupport::reason_against_graphs(at::Device device) const {
  return join("it is for CUDA devices, and the device is ", device.str());
}
std::unique_ptr<DeviceGraph> DeviceSupport::make_graph() const { return nullptr; }
std::optional<CollectivesLibrary> DeviceSupport::collectives() const { return {}; }
std::optional<torch::profiler::impl::ActivityType> DeviceSupport::kernel_activity() const { return {}; }

}  // namespace composer

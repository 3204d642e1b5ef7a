#pragma once
// What is particular to one type of devices. Whoever needs to know asks here, and not which type it is.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "composer/core/export.h"

// Declared, because libtorch's headers of them lead to many others.
namespace at {
enum class Float32Backend;
}
namespace c10 {
struct DeviceAllocator;
}
namespace torch::profiler::impl {
enum class ActivityType;
}

namespace composer {

class AllocatorHistory;
class DeviceGraph;
class DeviceReader;
enum class Precision : std::uint8_t;

// How fast a device can be.
struct PeakRate {
  std::string device;           // its name
  std::optional<double> flops;  // dense floating-point operations per second; unset: not known
};

// The library with a device's collectives, whose functions are in composer/device/collectives.h.
struct CollectivesLibrary {
  const char* file;   // "libcomposer_nccl.so"
  const char* maker;  // "NCCL"
  const char* needs;  // what it takes to have it, for the error that says that it cannot be loaded
};

// Counts the tensors that this thread allocates on a device while it lives.
class MemoryScope {
 public:
  MemoryScope() = default;
  virtual ~MemoryScope() = default;
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  virtual std::int64_t peak() const = 0;  // bytes at once, until now; 0: not counted
};

// What a device that has nothing of a kind says is said here; a folder beside this file says the rest. Trainers on
// several threads ask the same object.
class DeviceSupport {
 public:
  DeviceSupport() = default;
  virtual ~DeviceSupport() = default;
  DeviceSupport(const DeviceSupport&) = delete;
  DeviceSupport& operator=(const DeviceSupport&) = delete;

  // --- which there are
  // As an accelerator of this process: a trainer that is not told a device takes one of these.
  virtual bool is_available() const;
  virtual int count() const;  // of this machine; may start the driver
  // Throws ConfigError if a trainer cannot have this one.
  virtual void check(at::Device device) const;
  // The one that a rank takes that was told `device`.
  virtual at::Device of_rank(at::Device device, int local_rank) const;
  // The hyperparameter that says how many ranks a machine has, in Composer's words.
  virtual std::string key_of_ranks() const;

  // --- what they are
  // The name that its maker gives to devices of its kind; where nobody knows it, "xpu:0".
  virtual std::string name_of(at::Device device) const;
  // Of products in this precision; unset: nothing is known of such devices. Throws if the device does not say its name.
  virtual std::optional<PeakRate> peak_rate(at::Device device, Precision precision) const;
  // Load and temperature; null: nobody measures them. Throws if they cannot be read.
  virtual std::unique_ptr<DeviceReader> reader(at::Device device) const;

  // --- memory
  // The allocator, if it has statistics; or null.
  virtual c10::DeviceAllocator* allocator(at::Device device) const;
  // Bytes that this process can still get: what is free or cached.
  virtual std::int64_t available_memory(at::Device device) const;
  // Gives what allocators keep for the next tensor back, so that larger blocks can be had.
  virtual void release_cached_memory(at::Device device) const;
  // `limit`: bytes, above which an allocation is a c10::OutOfMemoryError where nobody else refuses in time.
  virtual std::unique_ptr<MemoryScope> count_memory(at::Device device, std::int64_t limit) const;
  // Whether copies from and to pinned memory of the host go on while the host does.
  virtual bool pins_memory() const;
  // A user of the allocator's one history; null: it keeps none.
  virtual std::unique_ptr<AllocatorHistory> allocator_history() const;

  // --- settings of libtorch, which the whole process has
  // Where the precision of products of floats is set, if they may use TF32.
  virtual std::optional<at::Float32Backend> tf32_backend() const;
  // Before deterministic algorithms are asked for: what libtorch wants to have been set.
  virtual void prepare_determinism() const;

  // --- work
  // Why nothing can be recorded and repeated there; empty: it can.
  virtual std::string reason_against_graphs(at::Device device) const;
  virtual std::unique_ptr<DeviceGraph> make_graph() const;  // null if there is a reason against it
  virtual std::optional<CollectivesLibrary> collectives() const;
  // What libtorch's profiler calls the kernels; unset: it does not record them.
  virtual std::optional<torch::profiler::impl::ActivityType> kernel_activity() const;
};

// That of the devices of this type. Of a type that no folder is about it is a DeviceSupport, which knows what libtorch
// knows of each accelerator.
COMPOSER_EXPORT const DeviceSupport& device_support(at::DeviceType type);

// The type of the accelerators of this process, if there are any.
COMPOSER_EXPORT std::optional<at::DeviceType> available_accelerator();

// What device_support() is from now on; returns what it was. Null: a DeviceSupport. For tests, which put it back.
const DeviceSupport* exchange_device_support(at::DeviceType type, const DeviceSupport* support);

}  // namespace composer

#pragma once
// The properties of one type of devices. Code that depends on them calls these functions, and does not test the type.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

#include "composer/core/export.h"

// Declared here, because libtorch's headers for these types include many others.
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

// The peak rate of a device.
struct PeakRate {
  std::string device;           // its name
  std::optional<double> flops;  // dense floating-point operations per second; unset: unknown
};

// The library with a device's collectives, whose functions are described in composer/device/collectives.h.
struct CollectivesLibrary {
  const char* file;   // "libcomposer_nccl.so"
  const char* maker;  // "NCCL"
  const char* needs;  // what must be installed, for the error that says that the library cannot be loaded
};

// Counts the memory of tensors that this thread allocates on a device during the life of this object.
class MemoryScope {
 public:
  MemoryScope() = default;
  virtual ~MemoryScope() = default;
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;
  virtual std::int64_t peak() const = 0;  // most bytes at one time so far; 0: not counted
};

// This class has the defaults for devices without special support. Folders beside this file have one subclass for each
// supported type. Trainers on several threads share an object.
class DeviceSupport {
 public:
  DeviceSupport() = default;
  virtual ~DeviceSupport() = default;
  DeviceSupport(const DeviceSupport&) = delete;
  DeviceSupport& operator=(const DeviceSupport&) = delete;

  // --- existing devices
  // Whether such devices are accelerators of this process. A trainer without a configured device uses one of them.
  virtual bool is_available() const;
  virtual int count() const;  // number on this machine; may start the driver
  // Throws ConfigError if a trainer cannot use this device.
  virtual void check(at::Device device) const;
  // The device that a rank uses if `device` is configured.
  virtual at::Device of_rank(at::Device device, int local_rank) const;
  // Composer's name of the hyperparameter with the number of ranks on a machine.
  virtual std::string key_of_ranks() const;

  // --- properties
  // The maker's name for the device; "xpu:0" if it is unknown.
  virtual std::string name_of(at::Device device) const;
  // The peak rate of products in this precision; unset: unknown for such devices. Throws if the device does not report
  // its name.
  virtual std::optional<PeakRate> peak_rate(at::Device device, Precision precision) const;
  // Reads load and temperature; null: not supported. Throws if they cannot be read.
  virtual std::unique_ptr<DeviceReader> reader(at::Device device) const;

  // --- memory
  // The allocator if it has statistics, otherwise null.
  virtual c10::DeviceAllocator* allocator(at::Device device) const;
  // Bytes that this process can still allocate: free or cached.
  virtual std::int64_t available_memory(at::Device device) const;
  // Returns cached memory of the allocators to the device, so that larger blocks can be allocated.
  virtual void release_cached_memory(at::Device device) const;
  // `limit`: number of bytes above which an allocation throws c10::OutOfMemoryError, on devices that have no limit of
  // their own.
  virtual std::unique_ptr<MemoryScope> count_memory(at::Device device, std::int64_t limit) const;
  // Whether copies from and to pinned host memory run while the host does other work.
  virtual bool pins_memory() const;
  // A user of the allocator's shared history; null: there is none.
  virtual std::unique_ptr<AllocatorHistory> allocator_history() const;

  // --- settings of libtorch for the whole process
  // The backend whose setting decides whether products of floats use TF32; unset: they cannot use it.
  virtual std::optional<at::Float32Backend> tf32_backend() const;
  // To be called before deterministic algorithms are switched on: makes the settings that libtorch requires.
  virtual void prepare_determinism() const;

  // --- work
  // The reason why work cannot be recorded and replayed; empty: it can.
  virtual std::string reason_against_graphs(at::Device device) const;
  virtual std::unique_ptr<DeviceGraph> make_graph() const;  // null if there is a reason against it
  virtual std::optional<CollectivesLibrary> collectives() const;
  // The type of kernels in libtorch's profiler; unset: it does not record them.
  virtual std::optional<torch::profiler::impl::ActivityType> kernel_activity() const;
};

// The support for devices of this type. For a type without a folder, a DeviceSupport, which uses what libtorch provides
// for each accelerator.
COMPOSER_EXPORT const DeviceSupport& device_support(at::DeviceType type);

// The type of this process's accelerators; unset: it has none.
COMPOSER_EXPORT std::optional<at::DeviceType> available_accelerator();

// Replaces the result of device_support() for the type, and returns the previous one. Null: a DeviceSupport. For tests,
// which must restore it.
const DeviceSupport* exchange_device_support(at::DeviceType type, const DeviceSupport* support);

}  // namespace composer

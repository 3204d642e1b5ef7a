#pragma once
#include <memory>
#include <string>
#include <string_view>

#include <c10/core/Device.h>

#include "composer/device/device_reader.h"

namespace composer::cuda {

// A GPU as NVIDIA's management library describes it. The library is loaded at run time.
class GpuReader final : public DeviceReader {
 public:
  // `name` is an NVML index, a UUID ("GPU-..."), or a place on the PCI bus ("0000:0A:00.0"). Throws Error if the
  // library is missing or does not know the device.
  GpuReader(const char* library, const std::string& name);
  ~GpuReader() override;
  GpuReader(const GpuReader&) = delete;
  GpuReader& operator=(const GpuReader&) = delete;

  std::string name() const;  // "NVIDIA H200"; empty if it is not reported

  // Adds gpu_percentage, memory_percentage, gpu_temperature_C and gpu_power_usage_W, except those that the GPU does not
  // report.
  void add(Readings& readings) const override;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
  void* device_ = nullptr;
};

// The entry of a list such as "2,0,GPU-1234" in CUDA_VISIBLE_DEVICES to which CUDA gives the index `device`. Without a
// list, the index itself; it is also NVML's index only if all GPUs are alike, or CUDA_DEVICE_ORDER is PCI_BUS_ID.
// Throws Error if the list has no such entry.
std::string name_in_list(int device, std::string_view visible_devices);

// Makes a reader of a CUDA device. Finds the device by its place on the PCI bus, which CUDA's runtime knows; if the
// program does not contain the runtime, by CUDA_VISIBLE_DEVICES. Throws Error like the constructor.
std::unique_ptr<GpuReader> gpu_reader_of(c10::Device device);

}  // namespace composer::cuda

// Loads NVML by dlopen, so that the library needs no CUDA headers and runs without a driver.
#include "composer/device/cuda/gpu_reader.h"

#include <array>
#include <charconv>
#include <dlfcn.h>
#include <string>

#include "composer/core/error.h"
#include "composer/util/environment.h"

namespace composer::cuda {
// Names and layouts from here on are those of nvml.h, which NVIDIA keeps stable.
struct Utilization {
  unsigned int gpu, memory;  // in per cent
};

namespace {

using NvmlDevice = void*;
constexpr int kSuccess = 0, kTemperatureOfGpu = 0;

// The device's place on the PCI bus according to CUDA's runtime. Empty if the program does not contain the runtime.
std::string place_on_bus(int device) {
  using PlaceOf = int(char* place, int size, int device);
  auto* const place_of = reinterpret_cast<PlaceOf*>(dlsym(RTLD_DEFAULT, "cudaDeviceGetPCIBusId"));
  std::array<char, 64> place{};
  return place_of && place_of(place.data(), static_cast<int>(place.size()), device) == kSuccess ? place.data() : "";
}

}  // namespace

std::string name_in_list(int device, std::string_view visible_devices) {
  if (visible_devices.empty()) return std::to_string(device);
  for (int i = 0; i < device; ++i) {
    const std::size_t comma = visible_devices.find(',');
    if (comma == std::string_view::npos)
      throw Error("CUDA_VISIBLE_DEVICES does not list as many as ", device + 1, " devices");
    visible_devices = visible_devices.substr(comma + 1);
  }
  const std::string_view name = visible_devices.substr(0, visible_devices.find(','));
  const std::size_t begin = name.find_first_not_of(' ');
  if (begin == std::string_view::npos) throw Error("CUDA_VISIBLE_DEVICES has an empty entry");
  return std::string(name.substr(begin, name.find_last_not_of(' ') - begin + 1));
}

struct GpuReader::Library {
  explicit Library(const char* name) : handle(dlopen(name, RTLD_NOW | RTLD_LOCAL), &dlclose) {
    if (!handle) throw Error("cannot load ", name, ": ", dlerror());
    find(init, "nvmlInit_v2");
    find(shutdown, "nvmlShutdown");
    find(by_index, "nvmlDeviceGetHandleByIndex_v2");
    find(by_uuid, "nvmlDeviceGetHandleByUUID");
    find(by_place, "nvmlDeviceGetHandleByPciBusId_v2");
    find(name_of_device, "nvmlDeviceGetName");
    find(utilization, "nvmlDeviceGetUtilizationRates");
    find(temperature, "nvmlDeviceGetTemperature");
    find(power, "nvmlDeviceGetPowerUsage");
    if (const int error = init(); error != kSuccess) throw Error("nvmlInit_v2 failed with error ", error);
    is_open = true;
  }
  ~Library() {
    if (is_open) shutdown();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <class F>
  void find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(handle.get(), name));
    if (!function) throw Error("NVML has no function ", name);
  }

  NvmlDevice device(const std::string& name) const {
    unsigned int index = 0;
    NvmlDevice device = nullptr;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = error == std::errc() && end == name.data() + name.size();
    const auto by_name = name.find(':') != std::string::npos ? by_place : by_uuid;
    if (const int result = is_index ? by_index(index, &device) : by_name(name.c_str(), &device); result != kSuccess)
      throw Error("NVML does not know the device ", name, " (error ", result, ")");
    return device;
  }

  std::unique_ptr<void, int (*)(void*)> handle;
  bool is_open = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_index)(unsigned int, NvmlDevice*) = nullptr;
  int (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  int (*by_place)(const char*, NvmlDevice*) = nullptr;
  int (*name_of_device)(NvmlDevice, char*, unsigned int) = nullptr;
  int (*utilization)(NvmlDevice, Utilization*) = nullptr;
  int (*temperature)(NvmlDevice, int, unsigned int*) = nullptr;
  int (*power)(NvmlDevice, unsigned int*) = nullptr;
};

GpuReader::GpuReader(const char* library, const std::string& name)
    : library_(std::make_unique<Library>(library)), device_(library_->device(name)) {}
GpuReader::~GpuReader() = default;

std::string GpuReader::name() const {
  std::array<char, 96> name{};
  return library_->name_of_device(device_, name.data(), name.size()) == kSuccess ? name.data() : std::string();
}

void GpuReader::add(Readings& readings) const {
  Utilization busy{};
  if (library_->utilization(device_, &busy) == kSuccess) {
    readings.push_back({"gpu_percentage", std::int64_t{busy.gpu}});
    readings.push_back({"memory_percentage", std::int64_t{busy.memory}});
  }
  unsigned int value = 0;
  if (library_->temperature(device_, kTemperatureOfGpu, &value) == kSuccess)
    readings.push_back({"gpu_temperature_C", std::int64_t{value}});
  if (library_->power(device_, &value) == kSuccess)
    readings.push_back({"gpu_power_usage_W", static_cast<double>(value) / 1000});
}

std::unique_ptr<GpuReader> gpu_reader_of(c10::Device device) {
  std::string name = place_on_bus(device.index());
  if (name.empty()) name = name_in_list(device.index(), environment("CUDA_VISIBLE_DEVICES"));
  return std::make_unique<GpuReader>("libnvidia-ml.so.1", name);
}

}  // namespace composer::cuda

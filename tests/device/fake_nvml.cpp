// A library with the functions of NVML that GpuReader calls, for two GPUs and one that reports nothing.
#include <cstdint>
#include <cstring>

struct Utilization {
  unsigned int gpu, memory;
};
using Device = std::uintptr_t;

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device* device) {
  if (index > 2) return 6;
  *device = index + 1;
  return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  if (std::strcmp(uuid, "GPU-b") != 0) return 6;
  *device = 2;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* place, Device* device) {
  if (std::strcmp(place, "0000:0A:00.0") != 0) return 6;
  *device = 2;
  return 0;
}
int nvmlDeviceGetName(Device device, char* name, unsigned int size) {
  if (device == 3 || size < 12) return 3;
  std::strcpy(name, "NVIDIA H200");
  return 0;
}
int nvmlDeviceGetUtilizationRates(Device device, Utilization* rates) {
  *rates = {static_cast<unsigned int>(device * 10), static_cast<unsigned int>(device * 10 + 1)};
  return device == 3 ? 3 : 0;
}
int nvmlDeviceGetTemperature(Device device, int sensor, unsigned int* degrees) {
  *degrees = static_cast<unsigned int>(device * 10 + 2);
  return device == 3 || sensor != 0 ? 3 : 0;
}
int nvmlDeviceGetPowerUsage(Device device, unsigned int* milliwatts) {
  *milliwatts = static_cast<unsigned int>(device * 1000 + 500);
  return device == 3 ? 3 : 0;
}
}

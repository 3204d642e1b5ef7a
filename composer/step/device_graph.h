#pragma once
#include <functional>
#include <memory>
#include <string>

#include <c10/core/Device.h>

namespace composer {

// What is queued on a device between begin and end is recorded and not done; each replay does all of it, in the same
// memory. Each works on the stream that is current at the call; recording wants another one than the default.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void capture_begin() = 0;
  virtual void capture_end() = 0;  // throws if there was something that cannot be recorded
  virtual void replay() = 0;
};

using MakeDeviceGraph = std::function<std::unique_ptr<DeviceGraph>()>;

// Empty: nothing can be recorded on devices of this type.
MakeDeviceGraph device_graphs(at::DeviceType type);
MakeDeviceGraph cuda_graphs();  // empty if this library was built without CUDA

// The GPU as its maker names it: "NVIDIA H200, 132 multiprocessors". "cuda:0" if this library was built without CUDA.
std::string name_of_gpu(at::Device device);

// What device_graphs() gives from now on, until it is given back what it gave before. For tests.
MakeDeviceGraph exchange_device_graphs(at::DeviceType type, MakeDeviceGraph make);

}  // namespace composer

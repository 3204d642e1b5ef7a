#pragma once
#include <functional>
#include <memory>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace composer {

// Makes a stream the current one of its device.
class StreamScope {
 public:
  StreamScope(const c10::impl::VirtualGuardImpl& device, c10::Stream stream)
      : device_(device), before_(device.exchangeStream(stream)) {}
  ~StreamScope() { device_.exchangeStream(before_); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  const c10::impl::VirtualGuardImpl& device_;
  c10::Stream before_;
};

// The same device with its index, also if the device was given without one.
inline at::Device with_index(at::Device device) {
  if (device.has_index() || device.is_cpu()) return device;
  return at::Device(device.type(), c10::impl::VirtualGuardImpl(device.type()).getDevice().index());
}

// A stream beside the default one that this function returns to no other caller until the result is destroyed. libtorch
// hands out a few streams of a device in turn; if a step is recorded on one, no other work may be queued on it. Null:
// the device has no streams to choose from, or all are in use.
using SideStream = std::shared_ptr<const c10::Stream>;
SideStream side_stream(at::Device device);
// Like side_stream(), but chooses among the streams that `next` returns.
SideStream take_stream(const std::function<c10::Stream()>& next);

}  // namespace composer

#pragma once
#include <optional>

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

// The same device with its number, also if "cuda" was asked for without one.
inline at::Device with_index(at::Device device) {
  if (device.has_index() || device.is_cpu()) return device;
  return at::Device(device.type(), c10::impl::VirtualGuardImpl(device.type()).getDevice().index());
}

// A stream beside the default one, if the device has streams to choose from.
inline std::optional<c10::Stream> side_stream(at::Device device) {
  try {
    return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(with_index(device));
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace composer

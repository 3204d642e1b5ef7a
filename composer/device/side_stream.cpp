#include "composer/device/side_stream.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include <c10/util/Exception.h>

namespace composer {
namespace {

constexpr int kMost = 64;  // more than libtorch has for one device and priority

// The streams that are in use.
class Taken {
 public:
  static Taken& instance() {
    static auto* const all = new Taken;  // never destroyed: a trainer may be a global, which is destroyed later
    return *all;
  }
  bool add(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(streams_, stream) != streams_.end()) return false;
    streams_.push_back(stream);
    return true;
  }
  void remove(const c10::Stream& stream) {
    const std::lock_guard lock(mutex_);
    std::erase(streams_, stream);
  }

 private:
  std::mutex mutex_;
  std::vector<c10::Stream> streams_;
};

}  // namespace

SideStream take_stream(const std::function<c10::Stream()>& next) {
  for (int i = 0; i < kMost; ++i) {
    const c10::Stream stream = next();
    if (!Taken::instance().add(stream)) continue;
    return {new c10::Stream(stream), [](const c10::Stream* taken) {
              Taken::instance().remove(*taken);
              delete taken;
            }};
  }
  return nullptr;
}

SideStream side_stream(at::Device device) {
  try {
    const c10::impl::VirtualGuardImpl guard(device.type());
    return take_stream([&] { return guard.getStreamFromGlobalPool(with_index(device)); });
  } catch (const c10::Error&) {
    return nullptr;
  }
}

}  // namespace composer

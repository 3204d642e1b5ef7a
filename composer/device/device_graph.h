#pragma once

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

}  // namespace composer

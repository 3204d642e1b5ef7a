#pragma once

namespace composer {

// A recording of work on a device. Work that is queued between capture_begin() and capture_end() is recorded and not
// executed. Each replay() executes all of it, in the same memory. Each call uses the current stream; a recording must
// not be made on the default stream.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void capture_begin() = 0;
  virtual void capture_end() = 0;  // throws if the work contained something that cannot be recorded
  virtual void replay() = 0;
};

}  // namespace composer

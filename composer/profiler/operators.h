#pragma once
// What libtorch's profiler (kineto) records of operators and of the kernels that they start on a device.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace torch::profiler::impl {
enum class ActivityType;
}

namespace composer::profiler {

struct OperatorCall {
  std::string name;
  std::int64_t begin_ns = 0, duration_ns = 0;  // since the epoch of the system's clock
  std::uint64_t thread = 0;                    // of the host; of a device: its stream
  int device = -1;                             // its index; -1: the host
  std::string shapes;                          // of the operands, if asked for: "[32, 784] [32]"
};

// One per process can be started at a time, as libtorch has it.
class OperatorRecorder {
 public:
  using Activity = torch::profiler::impl::ActivityType;

  // `kernels`: what libtorch calls those of the device, if it has any.
  OperatorRecorder(bool shapes, std::optional<Activity> kernels) : shapes_(shapes), kernels_(kernels) {}
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  void prepare();  // takes a while the first time
  // Both throw Error with libtorch's reason; operators of the calling thread, and of the backward passes it starts.
  void start();
  std::vector<OperatorCall> stop();
  bool started() const { return started_; }

 private:
  const bool shapes_;
  const std::optional<Activity> kernels_;
  bool prepared_ = false, started_ = false;
};

}  // namespace composer::profiler

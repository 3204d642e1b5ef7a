#pragma once
// Records operators, and the kernels that they start on a device, with libtorch's profiler (kineto).
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
  std::uint64_t thread = 0;                    // thread of the host, or stream of a device
  int device = -1;                             // index of the device; -1: the host
  std::string shapes;                          // shapes of the operands, if requested: "[32, 784] [32]"
};

// Only one recorder per process can be started at a time, because libtorch has one profiler.
class OperatorRecorder {
 public:
  using Activity = torch::profiler::impl::ActivityType;

  // `kernels`: the type of the device's kernels in libtorch's profiler; unset: the host is recorded alone.
  OperatorRecorder(bool shapes, std::optional<Activity> kernels) : shapes_(shapes), kernels_(kernels) {}
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  void prepare();  // takes a while at the first call
  // Both throw Error with libtorch's reason. They record operators of the calling thread, and of the backward passes
  // that it starts.
  void start();
  std::vector<OperatorCall> stop();
  bool started() const { return started_; }

 private:
  const bool shapes_;
  const std::optional<Activity> kernels_;
  bool prepared_ = false, started_ = false;
};

}  // namespace composer::profiler

#pragma once
#include "composer/device/device_support.h"

namespace composer {

// Supports NVIDIA's GPUs. Functions that need CUDA's headers are in toolkit.h. The others also work without the
// headers, in a program that links libtorch_cuda itself.
class CudaSupport : public DeviceSupport {
 public:
  bool is_available() const override;
  int count() const override;
  void check(at::Device device) const override;
  // With several ranks, a GPU without an index becomes the GPU whose index is the local rank.
  at::Device of_rank(at::Device device, int local_rank) const override;
  std::string key_of_ranks() const override;

  // "NVIDIA H200, 132 multiprocessors"
  std::string name_of(at::Device device) const override;
  std::optional<PeakRate> peak_rate(at::Device device, Precision precision) const override;
  std::unique_ptr<DeviceReader> reader(at::Device device) const override;

  bool pins_memory() const override;
  std::unique_ptr<AllocatorHistory> allocator_history() const override;

  std::optional<at::Float32Backend> tf32_backend() const override;
  void prepare_determinism() const override;

  std::string reason_against_graphs(at::Device device) const override;
  std::unique_ptr<DeviceGraph> make_graph() const override;
  std::optional<CollectivesLibrary> collectives() const override;
  std::optional<torch::profiler::impl::ActivityType> kernel_activity() const override;
};

}  // namespace composer

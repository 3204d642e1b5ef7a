#include <ATen/cuda/CUDAGraph.h>

#include "composer/step/device_graph.h"

namespace composer {
namespace {

// Not at::accelerator::Graph: libtorch 2.15 registers no implementation of it for CUDA.
class CudaGraph final : public DeviceGraph {
 public:
  // Of this thread alone: those that load data or write checkpoints may go on meanwhile.
  void capture_begin() override { graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal); }
  void capture_end() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace

MakeDeviceGraph cuda_graphs() {
  return [] { return std::make_unique<CudaGraph>(); };
}

}  // namespace composer

#include <ATen/cuda/CUDAGraph.h>

#include "composer/step/device_graph.h"
#include "composer/util/own_random.h"

namespace composer {
namespace {

// Not at::accelerator::Graph: libtorch 2.15 registers no implementation of it for CUDA.
// Older versions of libtorch record the default generator alone, unless told; newer ones whatever is drawn from.
template <class Graph>
void record_draws(Graph& graph, const at::Generator& generator) {
  if constexpr (requires { graph.register_generator_state(generator); }) graph.register_generator_state(generator);
}

class CudaGraph final : public DeviceGraph {
 public:
  // Of this thread alone: those that load data or write checkpoints may go on meanwhile.
  void capture_begin() override {
    record_draws(graph_, current_generator(at::kCUDA));
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  }
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

#include "composer/device/cuda/toolkit.h"

#include <exception>
#include <mutex>
#include <optional>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include "composer/core/error.h"
#include "composer/util/own_random.h"

namespace composer::cuda {
namespace {

// at::accelerator::Graph is not used, because libtorch 2.15 has no implementation for CUDA. Older versions of libtorch
// record only the default generator, unless others are registered; newer versions record every generator that is used.
template <class Graph>
void record_draws(Graph& graph, const at::Generator& generator) {
  if constexpr (requires { graph.register_generator_state(generator); }) graph.register_generator_state(generator);
}

// If a recording fails, older versions of libtorch leave it half open. Generators then refuse to draw, and allocators
// keep the memory of every tensor that another stream has used, as if a recording were running.
template <class Graph>
class Recorder : public Graph {
 public:
  // To be called after capture_begin() or capture_end() has thrown.
  void give_up() {
    if constexpr (!requires { this->capturing_to_pool_; }) {
      if (this->capture_ended_) return;  // the error came later, and the destructor does the rest
      for (const auto& [generator, drawn] : this->captured_generator_states_) generator->capturing_ = false;
      // Ends the use of the pool before the destructor runs: until then, the allocators call this graph.
      attempt([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(this->capture_dev_, this->mempool_id_); });
      attempt([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(this->mempool_id_); });
      attempt([&] { c10::cuda::CUDACachingAllocator::releasePool(this->capture_dev_, this->mempool_id_); });
      attempt([&] { at::getHostAllocator(at::kCUDA)->release_pool(this->mempool_id_); });
    }
  }

 private:
  template <class Step>
  static void attempt(const Step& step) {
    try {
      step();
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): it had not begun, or has ended before it failed
    }
  }
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph() : graph_(std::in_place) {}
  ~CudaGraph() override {
    const auto alone = hold_default_generators();  // older versions of libtorch keep a list of graphs in the generators
    graph_.reset();
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Records this thread only: threads that load data or write checkpoints go on.
  void capture_begin() override {
    const auto alone = hold_default_generators();
    or_give_up([&] {
      record_draws(*graph_, current_generator(at::kCUDA));
      // The recording gets a pool of its own, as by default, but its id is known before an error can occur.
      graph_->capture_begin(at::cuda::graph_pool_handle(), cudaStreamCaptureModeThreadLocal);
    });
  }
  void capture_end() override {
    or_give_up([&] { graph_->capture_end(); });
  }
  void replay() override { graph_->replay(); }

 private:
  template <class Step>
  void or_give_up(const Step& step) {
    try {
      step();
    } catch (...) {
      graph_->give_up();
      throw;
    }
  }

  std::optional<Recorder<at::cuda::CUDAGraph>> graph_;
};

}  // namespace

bool has_toolkit() { return true; }

std::unique_ptr<DeviceGraph> make_graph() { return std::make_unique<CudaGraph>(); }

std::string name_of_gpu(at::Device device) {
  const cudaDeviceProp& gpu = *at::cuda::getDeviceProperties(device.index());
  return join(&gpu.name[0], ", ", gpu.multiProcessorCount, " multiprocessors");
}

}  // namespace composer::cuda

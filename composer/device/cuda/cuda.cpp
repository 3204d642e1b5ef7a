#include "composer/device/cuda/cuda.h"

#include <cstdlib>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include "composer/core/error.h"
#include "composer/device/cuda/cuda_history.h"
#include "composer/device/cuda/gpu_reader.h"
#include "composer/device/cuda/peak_flops.h"
#include "composer/device/cuda/toolkit.h"

namespace composer {

bool CudaSupport::is_available() const { return at::hasCUDA(); }

int CudaSupport::count() const { return static_cast<unsigned char>(at::detail::getCUDAHooks().deviceCount()); }

void CudaSupport::check(at::Device device) const {
  if (!at::hasCUDA() || device.index() >= at::detail::getCUDAHooks().deviceCount())
    throw ConfigError("device: ", device.str(), " was asked for, and libtorch does not find that CUDA device");
}

at::Device CudaSupport::of_rank(at::Device device, int local_rank) const {
  return device.has_index() ? device : at::Device(at::kCUDA, static_cast<at::DeviceIndex>(local_rank));
}

std::string CudaSupport::key_of_ranks() const { return "num_gpus_per_node"; }

std::string CudaSupport::name_of(at::Device device) const { return cuda::name_of_gpu(device); }

std::optional<PeakRate> CudaSupport::peak_rate(at::Device device, Precision precision) const {
  std::string name = cuda::gpu_reader_of(device)->name();
  const bool tf32 = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
                    at::Float32Precision::TF32;
  const std::optional<double> flops = cuda::peak_flops(name, precision, tf32);
  return PeakRate{.device = std::move(name), .flops = flops};
}

std::unique_ptr<DeviceReader> CudaSupport::reader(at::Device device) const { return cuda::gpu_reader_of(device); }

bool CudaSupport::pins_memory() const { return true; }

std::unique_ptr<AllocatorHistory> CudaSupport::allocator_history() const { return cuda::history(); }

std::optional<at::Float32Backend> CudaSupport::tf32_backend() const { return at::Float32Backend::CUDA; }

// libtorch requires this variable for deterministic algorithms; without it, products on a GPU throw. cuBLAS reads the
// variable at its first use. libtorch then gives cuBLAS a workspace for each stream, which makes products repeatable.
void CudaSupport::prepare_determinism() const {
  static const bool once = ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0) == 0;
  (void)once;
}

std::string CudaSupport::reason_against_graphs(at::Device /*device*/) const {
  return cuda::has_toolkit() ? "" : "this libcomposer was built without the headers of CUDA";
}

std::unique_ptr<DeviceGraph> CudaSupport::make_graph() const { return cuda::make_graph(); }

std::optional<CollectivesLibrary> CudaSupport::collectives() const {
  return CollectivesLibrary{
      .file = "libcomposer_nccl.so",
      .maker = "NCCL",
      .needs = "it needs a libtorch with CUDA, and is built where the headers of CUDA and NCCL are"};
}

std::optional<torch::profiler::impl::ActivityType> CudaSupport::kernel_activity() const {
  return torch::profiler::impl::ActivityType::CUDA;
}

}  // namespace composer

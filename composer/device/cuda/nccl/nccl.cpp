#include <chrono>
#include <exception>
#include <string>

#include <c10/cuda/CUDAFunctions.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "composer/device/collectives.h"

namespace composer::cuda {
namespace {

template <class Function>
const char* text_of_error(Function&& function) {
  thread_local std::string text;
  try {
    function();
    return nullptr;
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "an exception that is not a std::exception";
  }
  return text.c_str();
}

}  // namespace
}  // namespace composer::cuda

extern "C" {

[[gnu::visibility("default")]] int composer_collectives_torch_version() { return composer::collectives::TORCH; }

[[gnu::visibility("default")]] const char* composer_collectives_attach(c10d::Store* store, c10d::ProcessGroup* group,
                                                                       int rank, int size, int device,
                                                                       std::int64_t timeout_ms) {
  return composer::cuda::text_of_error([&] {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    const auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = std::chrono::milliseconds(timeout_ms);
    const auto keys =
        c10::make_intrusive<c10d::PrefixStore>("nccl", c10::intrusive_ptr<c10d::Store>::reclaim_copy(store));
    const c10::intrusive_ptr<c10d::Backend> backend =
        c10::make_intrusive<c10d::ProcessGroupNCCL>(keys, rank, size, options);
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL, backend);
  });
}

[[gnu::visibility("default")]] const char* composer_collectives_abort(c10d::ProcessGroup* group) {
  return composer::cuda::text_of_error([&] { group->getBackend(c10::DeviceType::CUDA)->abort(); });
}

[[gnu::visibility("default")]] const char* composer_collectives_shutdown(c10d::ProcessGroup* group) {
  return composer::cuda::text_of_error([&] { group->getBackend(c10::DeviceType::CUDA)->shutdown(); });
}
}

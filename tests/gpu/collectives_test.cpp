// NCCL with one rank, which is all that one GPU can show.
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/dist/accelerator.h"
#include "tests/gpu/gpu.h"

namespace composer::test::gpu_collectives_test {
namespace {

// Attaches NCCL to a group of one rank, and calls each of the collectives that World uses.
void use_collectives(dist::Accelerator& accelerator) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
  const at::Device device(at::kCUDA, 0);
  CHECK_FALSE(accelerator.has(device));
  accelerator.attach(group, store, dist::Environment(), device, std::chrono::seconds(30));
  CHECK(accelerator.has(device));
  const auto backend = group->getBackend(at::kCUDA);
  const at::Tensor expected = at::arange(5, at::kFloat);
  std::vector<at::Tensor> tensors{expected.to(device)};
  backend->allreduce(tensors)->wait();
  backend->broadcast(tensors)->wait();
  CHECK(tensors[0].cpu().equal(expected));
  at::Tensor all = at::zeros_like(tensors[0]), part = at::zeros_like(tensors[0]),
             exchanged = at::zeros_like(tensors[0]);
  std::vector<std::int64_t> even;
  backend->_allgather_base(all, tensors[0])->wait();
  backend->_reduce_scatter_base(part, tensors[0])->wait();
  backend->alltoall_base(exchanged, tensors[0], even, even)->wait();
  CHECK(all.cpu().equal(expected));
  CHECK(part.cpu().equal(expected));
  CHECK(exchanged.cpu().equal(expected));
}

TEST_CASE("The library of NCCL is loaded, has every collective for tensors on a GPU, and ends" * on_gpu()) {
  dist::Accelerator accelerator;
  use_collectives(accelerator);
  accelerator.shutdown();
  accelerator.shutdown();  // nothing is left to end
  accelerator.abort();
}

TEST_CASE("NCCL's watchdog is told before NCCL begins not to end the process" * on_gpu()) {
  dist::Accelerator accelerator;
  use_collectives(accelerator);
  const char* told = std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  REQUIRE(told != nullptr);
  CHECK(std::string_view(told) == "2");
  accelerator.shutdown();
}

TEST_CASE("The library of NCCL ends when its collectives are aborted, from two threads and before the process ends" *
          on_gpu()) {
  const auto accelerator = std::make_shared<dist::Accelerator>();
  use_collectives(*accelerator);
  std::thread([accelerator] { accelerator->abort(); }).join();
  accelerator->abort();
}

}  // namespace
}  // namespace composer::test::gpu_collectives_test

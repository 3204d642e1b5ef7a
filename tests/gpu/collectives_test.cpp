// NCCL with one rank, which is all that one GPU can show.
#include <chrono>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/dist/accelerator.h"
#include "tests/gpu/gpu.h"

namespace composer::test::gpu_collectives_test {
namespace {

TEST_CASE("The library of NCCL is loaded, and sums, gathers and broadcasts tensors on a GPU" * on_gpu()) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto group = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
  const at::Device device(at::kCUDA, 0);
  dist::Accelerator accelerator;
  CHECK_FALSE(accelerator.has(device));
  accelerator.attach(group, store, dist::Environment(), device, std::chrono::seconds(30));
  CHECK(accelerator.has(device));
  const auto backend = group->getBackend(at::kCUDA);
  std::vector<at::Tensor> tensors{at::arange(5, at::TensorOptions(at::kFloat).device(device))};
  backend->allreduce(tensors)->wait();
  backend->broadcast(tensors)->wait();
  CHECK(tensors[0].cpu().equal(at::arange(5, at::kFloat)));
  at::Tensor all = at::zeros({5}, tensors[0].options());
  backend->_allgather_base(all, tensors[0])->wait();
  CHECK(all.cpu().equal(at::arange(5, at::kFloat)));
  accelerator.abort();  // on a thread of its own
}

}  // namespace
}  // namespace composer::test::gpu_collectives_test

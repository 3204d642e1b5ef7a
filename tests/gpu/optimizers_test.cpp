// Optimizers on a GPU, against the CPU's loops.
#include <memory>
#include <string_view>

#include <ATen/record_function.h>

#include "composer/optim/optimizer.h"
#include "tests/gpu/gpu.h"
#include "tests/optim/support.h"

namespace composer::test::gpu_optimizers_test {
namespace {

struct Row {
  std::string name;
  optim::AnyOptimizer optimizer;
  double tolerance = 3e-6;  // in float32
};

std::vector<Row> rows() {
  using namespace optim;
  return {{"sgd", sgd({.lr = 0.1})},
          {"sgd, nesterov", sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true})},
          {"sgd, dampening", sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.5})},
          {"decoupled_sgdw", decoupled_sgdw({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01})},
          {"adam", adam({.lr = 0.01, .weight_decay = 0.1})},
          {"adam, amsgrad", adam({.lr = 0.01, .amsgrad = true})},
          {"adamw", adamw({.lr = 0.01})},
          {"decoupled_adamw", decoupled_adamw({.lr = 0.01, .weight_decay = 0.01})},
          {"rmsprop", rmsprop({.lr = 0.01, .momentum = 0.9, .centered = true}), 1e-4},
          {"adagrad", adagrad({.lr = 0.1, .lr_decay = 0.01})},
          {"adafactor", adafactor(), 1e-5},
          {"lamb", lamb({.lr = 0.01, .weight_decay = 0.01}), 1e-5},
          {"lion", lion({.lr = 1e-4, .weight_decay = 0.1}), 1e-3},             // a sign may turn
          {"muon", muon({.lr = 1e-3, .adamw_for = {"layer0.weight"}}), 1e-2},  // in bfloat16 on some processors
          {"combined", combined({{"*.weight", adamw({.lr = 0.01})}, {"*", sgd({.lr = 0.1, .momentum = 0.9})}})}};
}

optim::NamedParameters on_gpu_too(const optim::NamedParameters& list) {
  optim::NamedParameters copies;
  for (const auto& [name, tensor] : list) copies.push_back({name, tensor.detach().to(kGpu).set_requires_grad(true)});
  return copies;
}

void copy_gradients(const optim::NamedParameters& from, const optim::NamedParameters& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    at::Tensor parameter = to[i].tensor;
    parameter.mutable_grad() = from[i].tensor.grad().to(kGpu);
  }
}

TEST_CASE("Five steps of every optimizer on a GPU are those on the CPU" * on_gpu()) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    for (const Row& row : rows()) {
      CAPTURE(row.name);
      const auto here = tests::random_parameters(type), there = on_gpu_too(here);
      const auto ours = row.optimizer.make(there), reference = row.optimizer.make(here);
      for (std::uint64_t step = 0; step < 5; ++step) {
        tests::set_gradients(tests::tensors_of(here), step);
        copy_gradients(here, there);
        reference->step();
        ours->step();
      }
      for (const at::Tensor& one : tests::tensors_of(there)) CHECK(one.is_cuda());
      check_close(row.name + " of " + toString(type), tests::tensors_of(there), tests::tensors_of(here),
                  type == at::kDouble ? std::max(1e-10, row.tolerance * 1e-4) : row.tolerance);
    }
}

TEST_CASE("A step that is skipped on a GPU changes nothing, one that is not is a step" * on_gpu()) {
  for (const Row& row : rows()) {
    if (row.name == "sgd, dampening") continue;
    CAPTURE(row.name);
    const auto start = tests::random_parameters(at::kFloat);
    const auto a = on_gpu_too(start), b = on_gpu_too(start);
    const auto plain = row.optimizer.make(b);
    const auto ours = std::dynamic_pointer_cast<optim::NamedOptimizer>(row.optimizer.make(a));
    REQUIRE(ours);
    for (std::uint64_t step = 0; step < 3; ++step) {
      for (at::Tensor one : tests::tensors_of(a)) one.mutable_grad() = at::full_like(one.detach(), INFINITY);
      ours->step_unless(at::ones({}, at::TensorOptions(at::kFloat).device(kGpu)));
      tests::set_gradients(tests::tensors_of(start), step);
      copy_gradients(start, a);
      copy_gradients(start, b);
      ours->step_unless(at::zeros({}, at::TensorOptions(at::kFloat).device(kGpu)));
      plain->step();
    }
    check_close(row.name, tests::tensors_of(a), tests::tensors_of(b), 1e-7);
  }
}

// Counts the operators that read a value on the host, and so wait for the GPU.
int reads = 0;
std::unique_ptr<at::ObserverContext> see(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name == "aten::item" || name == "aten::_local_scalar_dense" || name == "aten::is_nonzero") ++reads;
  return nullptr;
}

TEST_CASE("A step of every optimizer on a GPU waits for nothing" * on_gpu()) {
  for (const Row& row : rows()) {
    CAPTURE(row.name);
    const auto start = tests::random_parameters(at::kFloat), list = on_gpu_too(start);
    const auto optimizer = row.optimizer.make(list);
    tests::set_gradients(tests::tensors_of(start), 1);
    copy_gradients(start, list);
    optimizer->step();  // makes the state
    reads = 0;
    const at::CallbackHandle handle =
        at::addThreadLocalCallback(at::RecordFunctionCallback(&see).scopes({at::RecordScope::FUNCTION}));
    optimizer->step();
    at::removeCallback(handle);
    CHECK(reads == 0);
  }
}

}  // namespace
}  // namespace composer::test::gpu_optimizers_test

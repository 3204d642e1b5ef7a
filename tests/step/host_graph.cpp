#include "tests/step/host_graph.h"

#include <cmath>
#include <mutex>
#include <stdexcept>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include "composer/util/own_random.h"

namespace composer::test {
namespace {

thread_local HostGraph* current = nullptr;  // that records

// Kernels alone: neither autograd nor autocast, nor the recording.
struct Below {
  at::AutoDispatchBelowADInplaceOrView autograd;
  c10::impl::ExcludeDispatchKeyGuard recording{c10::DispatchKey::Fake};
  c10::impl::ExcludeDispatchKeyGuard autocast{c10::autocast_dispatch_keyset};
};

void each_tensor(const c10::IValue& value, const auto& see) {
  if (value.isTensor() && value.toTensor().defined()) see(value.toTensor());
  if (value.isList())
    for (const c10::IValue& item : value.toListRef()) each_tensor(item, see);
}

// Brings what a call has computed to where the recorded one had put it.
void put(const c10::IValue& recorded, const c10::IValue& now) {
  if (recorded.isList())
    for (std::size_t i = 0; i < recorded.toListRef().size(); ++i) put(recorded.toListRef()[i], now.toListRef()[i]);
  if (!recorded.isTensor() || !recorded.toTensor().defined()) return;
  const at::Tensor& from = now.toTensor();
  if (!from.is_alias_of(recorded.toTensor())) recorded.toTensor().copy_(from);
}

}  // namespace

void HostGraph::called(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  current->record(op, *stack);
}

// The key lies below autograd and autocast and above the backends, and is taken only where it is asked for.
TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&HostGraph::called>());
}

void HostGraph::record(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.name() == "aten::_local_scalar_dense") {
    failed_ = true;
    throw std::runtime_error("operation not permitted when stream is capturing\nand more");
  }
  const auto last = [&stack](std::size_t count) {
    return std::vector<c10::IValue>(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  };
  const std::vector<c10::IValue> arguments = last(schema.arguments().size());
  for (const c10::IValue& argument : arguments) each_tensor(argument, [this](const at::Tensor& t) { keep(t); });
  {
    const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::Fake);
    op.callBoxed(stack);
  }
  const std::vector<c10::IValue> results = last(schema.returns().size());
  for (const c10::IValue& result : results) each_tensor(result, [this](const at::Tensor& t) { add_result(t); });
  calls_.push_back({op, arguments, results});
}

void HostGraph::keep(const at::Tensor& tensor) {
  if (!tensor.has_storage() || !known_.insert(tensor.storage().unsafeGetStorageImpl()).second) return;
  const Below below;
  given_.emplace_back(tensor, tensor.clone());
}

void HostGraph::add_result(const at::Tensor& tensor) {
  if (tensor.has_storage() && known_.insert(tensor.storage().unsafeGetStorageImpl()).second) made_.push_back(tensor);
}

void HostGraph::capture_begin() {
  ++counts_->captures;
  at::Generator generator = current_generator(at::kCPU);
  const std::lock_guard lock(generator.mutex());
  random_ = generator.get_state();
  current = this;
  recording_.emplace(c10::DispatchKey::Fake);
}

void HostGraph::stop_recording() {
  current = nullptr;
  recording_.reset();
}

void HostGraph::capture_end() {
  stop_recording();
  if (!failed_) {  // a GPU's recording draws nothing on the host that could be put back
    at::Generator generator = current_generator(at::kCPU);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(random_);
  }
  const Below below;
  for (const auto& [tensor, copy] : given_) tensor.copy_(copy);
  for (const at::Tensor& tensor : made_)
    if (tensor.is_floating_point()) tensor.fill_(NAN);
  given_.clear();
  if (!failed_) return;
  ++counts_->failures;
  throw std::runtime_error("operation failed due to a previous error during capture");
}

void HostGraph::replay() {
  ++counts_->replays;
  const at::DisableRecordFunctionGuard unseen;  // by who watches the host's operators
  const Below below;
  torch::jit::Stack stack;
  for (const Call& call : calls_) {
    stack = call.arguments;
    call.op.callBoxed(stack);
    const std::size_t first = stack.size() - call.results.size();
    for (std::size_t i = 0; i < call.results.size(); ++i) put(call.results[i], stack[first + i]);
  }
}

HostGraph::~HostGraph() {
  if (current == this) stop_recording();
}

}  // namespace composer::test

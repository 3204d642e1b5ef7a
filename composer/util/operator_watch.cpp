#include "composer/util/operator_watch.h"

#include <memory>
#include <mutex>

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace composer {
namespace {

// libtorch's callbacks are functions without an object, so the listener is stored in the thread's debug info, which
// libtorch hands on to the threads of the backward passes that the thread starts.
struct WatchState final : c10::DebugInfoBase {
  explicit WatchState(OperatorWatch::Listener& given) : listener(&given) {}
  std::mutex mutex;
  OperatorWatch::Listener* listener;  // null: the watch has ended
};

WatchState* state_here() {
  return static_cast<WatchState*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PRODUCER_INFO));
}

void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& into) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) into.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) into.push_back(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) add_tensors(element, into);
  }
}

// Inputs are available only before the operator runs, so they are kept.
struct Kept final : at::ObserverContext {
  OperatorCall call;
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const at::DisableRecordFunctionGuard quiet;
  WatchState* const state = state_here();
  if (!state) return nullptr;
  const std::lock_guard lock(state->mutex);
  if (!state->listener) return nullptr;
  auto kept = std::make_unique<Kept>();
  kept->call = {.name = function.name(),
                .is_node = function.scope() == at::RecordScope::BACKWARD_FUNCTION,
                .sequence = function.seqNr()};
  if (!kept->call.is_node)
    for (const c10::IValue& input : function.inputs()) add_tensors(input, kept->call.inputs);
  state->listener->begin(kept->call);
  return kept;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  const at::DisableRecordFunctionGuard quiet;
  WatchState* const state = state_here();
  if (!context || !state) return;
  const std::lock_guard lock(state->mutex);
  if (!state->listener) return;
  OperatorCall& call = static_cast<Kept*>(context)->call;
  if (!call.is_node)
    for (const c10::IValue& output : function.outputs()) add_tensors(output, call.outputs);
  state->listener->end(call);
}

}  // namespace

struct OperatorWatch::Impl {
  explicit Impl(Listener& listener)
      : state(std::make_shared<WatchState>(listener)),
        is_outermost(state_here() == nullptr),
        installed(c10::DebugInfoKind::PRODUCER_INFO, state) {
    if (is_outermost)
      handle = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                              .needsInputs(true)
                                              .needsOutputs(true)
                                              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~Impl() {
    if (is_outermost) at::removeCallback(handle);
    const std::lock_guard lock(state->mutex);
    state->listener = nullptr;
  }

  std::shared_ptr<WatchState> state;
  bool is_outermost;  // the callbacks of a thread's first watch also serve nested ones
  c10::DebugInfoGuard installed;
  at::CallbackHandle handle = 0;
};

OperatorWatch::OperatorWatch(Listener& listener) : impl_(std::make_unique<Impl>(listener)) {}
OperatorWatch::~OperatorWatch() = default;

}  // namespace composer

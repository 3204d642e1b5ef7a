#include "composer/util/operator_watch.h"

#include <memory>
#include <mutex>

#include <ATen/record_function.h>

namespace composer {
namespace {

std::mutex one_watch, one_call;
OperatorWatch::Listener* listener = nullptr;  // of the one watch; its callbacks are functions without an object

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

// Inputs can be seen before the operator runs only, so they are kept.
struct Kept final : at::ObserverContext {
  OperatorCall call;
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const at::DisableRecordFunctionGuard quiet;
  const std::lock_guard lock(one_call);
  auto kept = std::make_unique<Kept>();
  kept->call = {.name = function.name(),
                .is_node = function.scope() == at::RecordScope::BACKWARD_FUNCTION,
                .sequence = function.seqNr()};
  if (!kept->call.is_node)
    for (const c10::IValue& input : function.inputs()) add_tensors(input, kept->call.inputs);
  listener->begin(kept->call);
  return kept;
}

void end(const at::RecordFunction& function, at::ObserverContext* context) {
  const at::DisableRecordFunctionGuard quiet;
  const std::lock_guard lock(one_call);
  OperatorCall& call = static_cast<Kept*>(context)->call;
  if (!call.is_node)
    for (const c10::IValue& output : function.outputs()) add_tensors(output, call.outputs);
  listener->end(call);
}

}  // namespace

OperatorWatch::OperatorWatch(Listener& given) {
  one_watch.lock();
  listener = &given;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

OperatorWatch::~OperatorWatch() {
  at::removeCallback(handle_);
  listener = nullptr;
  one_watch.unlock();
}

}  // namespace composer

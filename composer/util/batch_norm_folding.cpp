#include "composer/util/batch_norm_folding.h"

#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace composer {
namespace {

using c10::DispatchKey;
using Impl = at::TensorImpl;

// This key is above autograd and autocast, and libtorch does not use it.
constexpr DispatchKey kFoldingKey = DispatchKey::TESTING_ONLY_GenericMode;

constexpr auto kLayers = {"conv1d", "conv1d.padding", "conv2d", "conv2d.padding", "conv3d", "conv3d.padding"};
constexpr std::string_view kNorm = "aten::batch_norm";

bool is_layer(std::string_view name) {
  return name == "aten::conv2d" || name == "aten::conv1d" || name == "aten::conv3d";
}

// The positions of arguments: layers have input, weight, bias; batch_norm has these.
enum LayerArgument : std::size_t { INPUT, WEIGHT, BIAS };
enum NormArgument : std::size_t { NORM_INPUT, GAMMA, BETA, MEAN, VARIANCE, TRAINING, MOMENTUM, EPS, NORM_SIZE = 9 };

at::Tensor tensor_of(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }
const Impl* impl_of(const at::Tensor& tensor) { return tensor.defined() ? tensor.unsafeGetTensorImpl() : nullptr; }

template <class F>
void for_each_tensor(const c10::IValue& value, const F& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) for_each_tensor(item, visit);
  }
}

// Records the operators that `forward` calls itself, not the operators that those call.
struct Watch {
  struct Output {
    c10::weak_intrusive_ptr<Impl> tensor;  // the weak reference keeps the address from being reused
    at::Tensor weight, bias;
    std::size_t uses = 0;
  };
  struct Norm {
    const Impl* input;  // null unless a layer made it: only addresses in `outputs` are safe from reuse
    at::Tensor gamma, beta, mean, variance;
    double eps;
  };
  int depth = 0;
  at::Tensor weight, bias;  // of the layer that is running
  std::unordered_map<const Impl*, Output> outputs;
  // Number of runs, of a layer by its weight, of a batch norm by its running mean.
  std::unordered_map<const Impl*, int> runs;
  std::vector<Norm> norms;

  void use(const c10::IValue& value) {
    for_each_tensor(value, [this](const at::Tensor& tensor) {
      if (const auto it = outputs.find(tensor.unsafeGetTensorImpl()); it != outputs.end()) ++it->second.uses;
    });
  }
  void start(const at::RecordFunction& op) {
    if (depth++ > 0) return;
    const auto inputs = op.inputs();
    for (const c10::IValue& input : inputs) use(input);
    if (is_layer(op.name())) {  // its inputs are no longer available when it ends
      weight = tensor_of(inputs[WEIGHT]);
      bias = tensor_of(inputs[BIAS]);
    }
    if (op.name() != kNorm || inputs.size() < NORM_SIZE) return;
    const at::Tensor mean = tensor_of(inputs[MEAN]), variance = tensor_of(inputs[VARIANCE]);
    if (inputs[TRAINING].toBool() || !mean.defined() || !variance.defined()) return;
    ++runs[mean.unsafeGetTensorImpl()];
    const Impl* input = impl_of(inputs[NORM_INPUT].toTensor());
    norms.push_back({outputs.contains(input) ? input : nullptr, tensor_of(inputs[GAMMA]), tensor_of(inputs[BETA]), mean,
                     variance, inputs[EPS].toDouble()});
  }
  void end(const at::RecordFunction& op) {
    if (--depth > 0 || !is_layer(op.name()) || op.outputs().empty()) return;  // there are no outputs if it has thrown
    const at::Tensor& made = op.outputs().front().toTensor();
    ++runs[weight.unsafeGetTensorImpl()];
    outputs.insert_or_assign(made.unsafeGetTensorImpl(),
                             Output{c10::weak_intrusive_ptr<Impl>(made.getIntrusivePtr()), weight, bias});
  }
};

thread_local Watch* watching = nullptr;
thread_local BatchNormFolding::Folded* running = nullptr;

template <class T>
// Assigns a variable for a scope.
class Assigned {
 public:
  Assigned(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~Assigned() { variable_ = before_; }
  Assigned(const Assigned&) = delete;
  Assigned& operator=(const Assigned&) = delete;

 private:
  T& variable_;
  T before_;
};

class CallbackScope {
 public:
  CallbackScope()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(
                [](const at::RecordFunction& op) -> std::unique_ptr<at::ObserverContext> {
                  watching->start(op);
                  return nullptr;
                },
                [](const at::RecordFunction& op, at::ObserverContext*) { watching->end(op); })
                .needsInputs(true)
                .needsOutputs(true)
                .scopes({at::RecordScope::FUNCTION}))) {}
  ~CallbackScope() { at::removeCallback(handle_); }
  CallbackScope(const CallbackScope&) = delete;
  CallbackScope& operator=(const CallbackScope&) = delete;

 private:
  at::CallbackHandle handle_;
};

}  // namespace

// Replacements of operators while folded copies are in use. They see the operators that `forward` calls itself, not the
// operators that those call.
struct FoldingKernels {
  static void other(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard without(kFoldingKey);
    use_arguments(op, *stack);
    op.callBoxed(stack);
  }

  static void layer(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard without(kFoldingKey);
    use_arguments(op, *stack);
    auto arguments = torch::jit::last(stack, op.schema().arguments().size());
    BatchNormFolding::Folded::Layer* layer =
        running ? running->find(arguments[WEIGHT].toTensor(), tensor_of(arguments[BIAS])) : nullptr;
    if (!layer) return op.callBoxed(stack);
    const auto at = stack->size() - op.schema().arguments().size();
    (*stack)[at + WEIGHT] = layer->weight;
    (*stack)[at + BIAS] = layer->bias;
    op.callBoxed(stack);
    running->note_output(*layer, stack->back().toTensor());
  }

  static void norm(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard without(kFoldingKey);
    const auto arguments = torch::jit::last(stack, NORM_SIZE);
    const auto impl = [&](NormArgument which) { return impl_of(tensor_of(arguments[which])); };
    const bool replaced = running && running->replaces(impl(NORM_INPUT),
                                                       {.gamma = impl(GAMMA),
                                                        .beta = impl(BETA),
                                                        .mean = impl(MEAN),
                                                        .variance = impl(VARIANCE),
                                                        .eps = arguments[EPS].toDouble()},
                                                       arguments[TRAINING].toBool());
    if (!replaced) return op.callBoxed(stack);
    // Returns another tensor on the same memory, so that its uses can be told from uses of the layer's output.
    const at::Tensor input = arguments[NORM_INPUT].toTensor();
    const auto version = input.is_inference() ? c10::VariableVersion() : c10::VariableVersion(0);
    at::Tensor output(input.unsafeGetTensorImpl()->shallow_copy_and_detach(version, true));
    torch::jit::drop(*stack, NORM_SIZE);
    stack->emplace_back(std::move(output));
  }

  // Called at the first use, so that a program that never folds registers nothing.
  static void install() {
    static const auto libraries = [] {
      torch::Library all(torch::Library::IMPL, "_", kFoldingKey, __FILE__, __LINE__);
      all.fallback(torch::CppFunction::makeFromBoxedFunction<&other>());
      torch::Library aten(torch::Library::IMPL, "aten", kFoldingKey, __FILE__, __LINE__);
      for (const char* name : kLayers) aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&layer>());
      aten.impl("batch_norm", torch::CppFunction::makeFromBoxedFunction<&norm>());
      return std::make_pair(std::move(all), std::move(aten));
    }();
  }

 private:
  static void use_arguments(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    // Threads that `forward` has started have no Folded.
    if (!running || running->outputs_.empty() || !op.hasSchema()) return;
    for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) running->note_use(value);
  }
};

// Notes a use of a folded layer's output by anything but its batch norm.
void BatchNormFolding::Folded::note_use(const c10::IValue& value) {
  for_each_tensor(value, [this](const at::Tensor& tensor) {
    result_is_wrong_ = result_is_wrong_ || outputs_.count(tensor.unsafeGetTensorImpl()) > 0;
  });
}

BatchNormFolding::Folded::Layer* BatchNormFolding::Folded::find(const at::Tensor& weight, const at::Tensor& bias) {
  const auto it = layers_.find(weight.unsafeGetTensorImpl());
  if (it == layers_.end()) return nullptr;
  if (it->second.own_bias == impl_of(bias)) return &it->second;
  stale_ = true;
  return nullptr;
}

void BatchNormFolding::Folded::note_output(Layer& layer, const at::Tensor& output) {
  result_is_wrong_ = result_is_wrong_ || layer.ran;
  layer.ran = true;
  outputs_.insert_or_assign(output.unsafeGetTensorImpl(),
                            Output{c10::weak_intrusive_ptr<Impl>(output.getIntrusivePtr()), layer.norm});
}

// Whether the layer that made the input has already done the batch norm's work.
bool BatchNormFolding::Folded::replaces(const Impl* input, const Norm& norm, bool training) {
  const auto it = outputs_.find(input);
  if (it == outputs_.end()) {
    const auto known = norms_.find(norm.mean);
    // The layer has another weight than when it was watched.
    stale_ = stale_ || (known != norms_.end() && !known->second->ran);
    return false;
  }
  Output& output = it->second;
  const bool other = training || !(norm == output.norm);
  stale_ = stale_ || other;
  result_is_wrong_ = result_is_wrong_ || other || output.normalized;
  output.normalized = true;
  return !other;
}

void BatchNormFolding::watch(const std::function<void()>& forward) {
  pairs_.clear();
  Watch watch;
  {
    const Assigned assigned(watching, &watch);
    const CallbackScope callback;
    forward();
  }
  for (const Watch::Norm& norm : watch.norms) {
    const auto it = watch.outputs.find(norm.input);
    if (it == watch.outputs.end()) continue;
    const auto& [tensor, weight, bias, uses] = it->second;
    const bool once = uses == 1 && watch.runs.at(weight.unsafeGetTensorImpl()) == 1 &&
                      watch.runs.at(norm.mean.unsafeGetTensorImpl()) == 1;
    if (!once || !tensor.expired()) continue;
    pairs_.push_back({weight, bias, norm.gamma, norm.beta, norm.mean, norm.variance, norm.eps});
  }
}

BatchNormFolding::Folded BatchNormFolding::fold() const {
  const at::NoGradGuard no_grad;
  FoldingKernels::install();
  Folded folded;
  folded.kept_alive_ = pairs_;
  for (const Pair& pair : pairs_) {
    at::Tensor scale = (pair.variance.to(at::kDouble) + pair.eps).rsqrt();
    if (pair.gamma.defined()) scale = scale * pair.gamma;
    at::Tensor shift = -pair.mean * scale;
    if (pair.bias.defined()) shift = shift + pair.bias * scale;
    if (pair.beta.defined()) shift = shift + pair.beta;
    std::vector<std::int64_t> shape(static_cast<std::size_t>(pair.weight.dim()), 1);
    shape[0] = -1;
    const at::ScalarType type = pair.weight.scalar_type();
    Folded::Layer& layer = folded.layers_[impl_of(pair.weight)];
    layer.weight = pair.weight * scale.to(type).view(shape);
    layer.bias = shift.to(type);
    layer.own_bias = impl_of(pair.bias);
    layer.norm = {impl_of(pair.gamma), impl_of(pair.beta), impl_of(pair.mean), impl_of(pair.variance), pair.eps};
    folded.norms_[layer.norm.mean] = &layer;
  }
  return folded;
}

bool BatchNormFolding::Folded::run(const std::function<void()>& forward) {
  result_is_wrong_ = false;
  outputs_.clear();
  for (auto& [weight, layer] : layers_) layer.ran = false;
  {
    const Assigned assigned(running, this);
    const c10::impl::IncludeDispatchKeyGuard with(kFoldingKey);
    forward();
  }
  for (const auto& [tensor, output] : outputs_)
    result_is_wrong_ = result_is_wrong_ || !output.normalized || !output.tensor.expired();
  outputs_.clear();
  return !result_is_wrong_;
}

}  // namespace composer

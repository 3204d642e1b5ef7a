#include "composer/util/batch_norm_folding.h"

#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace composer {
namespace {

using c10::DispatchKey;
using Impl = at::TensorImpl;

// Above autograd and autocast, and used by nothing in libtorch.
constexpr DispatchKey kKey = DispatchKey::TESTING_ONLY_GenericMode;

constexpr auto kLayers = {"conv1d", "conv1d.padding", "conv2d", "conv2d.padding", "conv3d", "conv3d.padding"};
constexpr std::string_view kNorm = "aten::batch_norm";

bool is_layer(std::string_view name) {
  return name == "aten::conv2d" || name == "aten::conv1d" || name == "aten::conv3d";
}

// The positions of arguments: layers have input, weight, bias; batch_norm has these.
enum LayerArgument : std::size_t { INPUT, WEIGHT, BIAS };
enum NormArgument : std::size_t { NORM_INPUT, GAMMA, BETA, MEAN, VARIANCE, TRAINING, MOMENTUM, EPS, NORM_SIZE = 9 };

at::Tensor tensor_of(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

// What the operators that forward itself calls have done, not those that these call.
struct Watch {
  struct Output {
    c10::weak_intrusive_ptr<Impl> tensor;  // keeps the address from being used again
    at::Tensor weight, bias;
    std::size_t uses = 0;
  };
  struct Norm {
    const Impl* input;
    at::Tensor gamma, beta, mean, variance;
    double eps;
  };
  int depth = 0;
  at::Tensor weight, bias;  // of the layer that runs
  std::unordered_map<const Impl*, Output> outputs;
  std::unordered_map<const Impl*, int> runs;  // of a layer by its weight, of a batch norm by its running mean
  std::vector<Norm> norms;

  void use(const c10::IValue& value) {
    if (value.isTensor()) {
      if (const auto it = outputs.find(value.toTensor().unsafeGetTensorImpl()); it != outputs.end()) ++it->second.uses;
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) use(tensor);
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) use(item);
    }
  }
  void start(const at::RecordFunction& op) {
    if (depth++ > 0) return;
    const auto inputs = op.inputs();
    for (const c10::IValue& input : inputs) use(input);
    if (is_layer(op.name())) {  // its inputs are gone when it ends
      weight = tensor_of(inputs[WEIGHT]);
      bias = tensor_of(inputs[BIAS]);
    }
    if (op.name() != kNorm || inputs.size() < NORM_SIZE) return;
    const at::Tensor mean = tensor_of(inputs[MEAN]), variance = tensor_of(inputs[VARIANCE]);
    if (inputs[TRAINING].toBool() || !mean.defined() || !variance.defined()) return;
    ++runs[mean.unsafeGetTensorImpl()];
    norms.push_back({inputs[NORM_INPUT].toTensor().unsafeGetTensorImpl(), tensor_of(inputs[GAMMA]),
                     tensor_of(inputs[BETA]), mean, variance, inputs[EPS].toDouble()});
  }
  void end(const at::RecordFunction& op) {
    if (--depth > 0 || !is_layer(op.name()) || op.outputs().empty()) return;  // none if it has thrown
    const at::Tensor& made = op.outputs().front().toTensor();
    ++runs[weight.unsafeGetTensorImpl()];
    outputs.insert_or_assign(made.unsafeGetTensorImpl(),
                             Output{c10::weak_intrusive_ptr<Impl>(made.getIntrusivePtr()), weight, bias});
  }
};

thread_local Watch* watching = nullptr;
thread_local BatchNormFolding::Folded* running = nullptr;

template <class T>
class Assigned {  // for a scope
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

// What operators do while folded copies are in force.
struct FoldingKernels {
  static void layer(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard without(kKey);
    auto arguments = torch::jit::last(stack, op.schema().arguments().size());
    auto& layers = running->layers_;
    const auto it = layers.find(arguments[WEIGHT].toTensor().unsafeGetTensorImpl());
    if (it == layers.end()) return op.callBoxed(stack);
    const auto at = stack->size() - op.schema().arguments().size();
    (*stack)[at + WEIGHT] = it->second.weight;
    (*stack)[at + BIAS] = it->second.bias;
    op.callBoxed(stack);
    running->lost_ |= it->second.made != nullptr;
    it->second.made = stack->back().toTensor().unsafeGetTensorImpl();
  }

  static void norm(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const c10::impl::ExcludeDispatchKeyGuard without(kKey);
    const auto arguments = torch::jit::last(stack, NORM_SIZE);
    const at::Tensor mean = tensor_of(arguments[MEAN]);
    const auto it = running->norms_.find(mean.unsafeGetTensorImpl());
    at::Tensor input = arguments[NORM_INPUT].toTensor();
    if (it == running->norms_.end() || it->second->made != input.unsafeGetTensorImpl() || arguments[TRAINING].toBool())
      return op.callBoxed(stack);
    it->second->made = nullptr;
    torch::jit::drop(*stack, NORM_SIZE);
    stack->emplace_back(std::move(input));
  }

  // At the first use, so that a program which never folds has nothing registered.
  static void install() {
    static const auto libraries = [] {
      torch::Library all(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
      all.fallback(torch::CppFunction::makeFallthrough());
      torch::Library aten(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
      for (const char* name : kLayers) aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&layer>());
      aten.impl("batch_norm", torch::CppFunction::makeFromBoxedFunction<&norm>());
      return std::make_pair(std::move(all), std::move(aten));
    }();
  }
};

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
  for (const Pair& pair : pairs_) {
    at::Tensor scale = (pair.variance.to(at::kDouble) + pair.eps).rsqrt();
    if (pair.gamma.defined()) scale = scale * pair.gamma;
    at::Tensor shift = -pair.mean * scale;
    if (pair.bias.defined()) shift = shift + pair.bias * scale;
    if (pair.beta.defined()) shift = shift + pair.beta;
    std::vector<std::int64_t> shape(static_cast<std::size_t>(pair.weight.dim()), 1);
    shape[0] = -1;
    const at::ScalarType type = pair.weight.scalar_type();
    Folded::Layer& layer = folded.layers_[pair.weight.unsafeGetTensorImpl()];
    layer.weight = pair.weight * scale.to(type).view(shape);
    layer.bias = shift.to(type);
    folded.norms_[pair.mean.unsafeGetTensorImpl()] = &layer;
  }
  return folded;
}

bool BatchNormFolding::Folded::run(const std::function<void()>& forward) {
  lost_ = false;
  for (auto& [weight, layer] : layers_) layer.made = nullptr;
  {
    const Assigned assigned(running, this);
    const c10::impl::IncludeDispatchKeyGuard with(kKey);
    forward();
  }
  for (const auto& [weight, layer] : layers_) lost_ |= layer.made != nullptr;
  return !lost_;
}

}  // namespace composer

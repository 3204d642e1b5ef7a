// Random numbers are redirected by a dispatch key that is enabled only within a scope. All operators fall through it at
// no cost, except those that take a generator: their kernel fills in the thread's generator if none was given, and
// calls the operator below.
#include "composer/util/own_random.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <torch/library.h>

#include "composer/core/error.h"
#include "composer/util/random.h"

namespace composer {
namespace {

// This key is above autograd, and libtorch does not use it: it was meant for torchdistx.
constexpr c10::DispatchKey kRandomKey = c10::DispatchKey::DeferredInit;

// Operators that draw on a GPU without taking a generator.
constexpr std::array<std::string_view, 5> kHidden = {
    "aten::native_dropout", "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention", "aten::_cudnn_rnn"};

thread_local const OwnRandom* current = nullptr;
thread_local std::optional<at::Device> recording_device;  // the device of this thread's RecordingScope

// Held while a generator of an OwnRandom stands in for a default generator.
std::mutex& default_generators() {
  static std::mutex mutex;
  return mutex;
}

bool is_generator(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  return type->kind() == c10::TypeKind::OptionalType &&
         type->expectRef<c10::OptionalType>().getElementType()->kind() == c10::TypeKind::GeneratorType;
}

bool is_missing(const c10::IValue& value) {
  return value.isNone() || (value.isGenerator() && !value.toGenerator().defined());
}

// The device of the first tensor, otherwise the device that an argument names.
at::Device device_of(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values) {
  for (const c10::IValue& value : values)
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().device();
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == "device" && values[i].isDevice()) return values[i].toDevice();
  return at::kCPU;
}

void call_below(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kRandomKey), stack);
}

void draw(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const std::size_t first = stack->size() - arguments.size();
  for (std::size_t i = 0; current && i < arguments.size(); ++i) {
    if (!is_generator(arguments[i]) || !is_missing((*stack)[first + i])) continue;
    const at::Device device = device_of(op, torch::jit::last(*stack, arguments.size()));
    if (recording_device && !recording_device->is_cpu() && device.is_cpu())
      decides_on_host(join(op.schema().name(), " draws on the host"));
    if (const at::Generator* mine = current->find(device)) (*stack)[first + i] = *mine;
  }
  call_below(op, keys, stack);
}

// Set while this thread's generator stands in for the default one.
thread_local bool replaces_default = false;

// During the call, the device's default generator continues this thread's numbers. This does not wait for the device,
// because only a pointer is exchanged. The call may be nested: autocast calls a recurrent layer's operator again.
void draw_hidden(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const at::Device device = device_of(op, torch::jit::last(*stack, op.schema().arguments().size()));
  const at::Generator* mine = current && !replaces_default && !device.is_cpu() ? current->find(device) : nullptr;
  if (!mine) return call_below(op, keys, stack);
  const std::unique_lock lock = hold_default_generators();
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const at::Generator before = generator.graphsafe_get_state();
  const auto exchange = [&](const at::Generator& now, bool begins) {
    generator.graphsafe_set_state(now);
    replaces_default = begins;
  };
  exchange(*mine, true);
  try {
    call_below(op, keys, stack);
  } catch (...) {
    exchange(before, false);
    throw;
  }
  exchange(before, false);
}

// Registered at the first use, so that a program that never trains registers nothing.
class Kernels {
 public:
  // Never destroyed: objects of static storage may still train when the program ends.
  static void install() {
    static const Kernels& kernels = *new Kernels;
    (void)kernels;
  }

 private:
  Kernels() : all_(torch::Library::IMPL, "_", kRandomKey, __FILE__, __LINE__) {
    all_.fallback(torch::CppFunction::makeFallthrough());
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op) continue;
      if (std::ranges::any_of(op->schema().arguments(), is_generator))
        add(name, torch::CppFunction::makeFromBoxedFunction<&draw>());
      else if (std::ranges::find(kHidden, name.name) != kHidden.end())
        add(name, torch::CppFunction::makeFromBoxedFunction<&draw_hidden>());
    }
  }

  void add(const c10::OperatorName& name, torch::CppFunction kernel) {
    const auto space = std::string(name.name.substr(0, name.name.find("::")));
    const auto [library, added] = spaces_.try_emplace(space, torch::Library::IMPL, space, kRandomKey, __FILE__,
                                                      static_cast<std::uint32_t>(__LINE__));
    library->second.impl((name.overload_name.empty() ? name.name : name.name + '.' + name.overload_name).c_str(),
                         std::move(kernel));
  }

  torch::Library all_;
  std::map<std::string, torch::Library> spaces_;
};

// Takes over the state of libtorch's CPU generator, and seeds that generator anew, so that neither the program nor the
// next trainer draws the same numbers again.
at::Generator take_over_default(std::uint64_t& drawn) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  at::Generator taken = generator.clone();
  drawn = hash64(at::check_generator<at::CPUGeneratorImpl>(generator)->random64());
  // Fits into int64, as logged seeds must.
  generator.set_current_seed(drawn & std::numeric_limits<std::int64_t>::max());
  return taken;
}

at::Generator copy_of_default() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.clone();
}

}  // namespace

// Without a seed, the CPU's numbers continue libtorch's, as a program that has seeded libtorch expects.
OwnRandom::OwnRandom(at::Device device, std::optional<std::uint64_t> seed) {
  Kernels::install();
  std::uint64_t drawn = 0;
  std::vector<at::Generator> all{seed ? copy_of_default() : take_over_default(drawn)};
  if (at::accelerator::isAccelerator(device.type()))
    all.push_back(at::globalContext().defaultGenerator(device).clone());
  if (!seed && all.size() > 1) all.back().set_current_seed(drawn);
  generators_ = std::make_shared<const std::vector<at::Generator>>(std::move(all));
  if (seed) this->seed(*seed);
}

void OwnRandom::seed(std::uint64_t seed) const {
  if (!generators_) return;
  for (at::Generator generator : *generators_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
  }
}

const at::Generator* OwnRandom::find(at::Device device) const {
  if (!generators_) return nullptr;
  const auto it = std::ranges::find_if(*generators_, [device](const at::Generator& generator) {
    const at::Device its = generator.device();
    return its.type() == device.type() && (!device.has_index() || device.is_cpu() || its.index() == device.index());
  });
  return it == generators_->end() ? nullptr : &*it;
}

StateDict OwnRandom::state() const {
  StateDict state;
  if (!generators_) return state;
  for (at::Generator generator : *generators_) {
    const std::lock_guard lock(generator.mutex());
    state[generator.device().str()] = generator.get_state();
  }
  return state;
}

void OwnRandom::restore(const StateDict& state) const {
  if (!generators_) return;
  for (at::Generator generator : *generators_) {
    const std::string device = generator.device().str();
    const StateValue* saved = state.find(device);
    if (!saved) {
      warn(join("checkpoint: no RNG state for ", device, "; its generator is not restored"));
      continue;
    }
    const auto* tensor = std::get_if<at::Tensor>(saved);
    if (!tensor || !tensor->defined()) throw CheckpointError("checkpoint: rng/", device, " is no state of a generator");
    const std::lock_guard lock(generator.mutex());
    try {
      generator.set_state(*tensor);
    } catch (const c10::Error&) {
      throw_nested<CheckpointError>("checkpoint: rng/", device, " is no state of this generator");
    }
  }
}

// Registers the kernels first: with the key enabled and nothing registered for it, every operator would throw.
RandomScope::RandomScope(const OwnRandom& own)
    : before_((Kernels::install(), std::exchange(current, &own))), on_(kRandomKey) {}
RandomScope::~RandomScope() { current = before_; }

OwnRandom current_random() { return current ? *current : OwnRandom(); }

std::unique_lock<std::mutex> hold_default_generators() { return std::unique_lock(default_generators()); }

RecordingScope::RecordingScope(at::Device device) : before_(std::exchange(recording_device, device)) {}
RecordingScope::~RecordingScope() { recording_device = before_; }

bool is_recording() { return recording_device.has_value(); }

void decides_on_host(std::string_view what) {
  if (recording_device) throw Error(what, ", which a recording would repeat in every batch");
}

at::Generator current_generator(at::Device device) {
  if (const at::Generator* mine = current ? current->find(device) : nullptr) return *mine;
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device);
}

}  // namespace composer

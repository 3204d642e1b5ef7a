#include "composer/util/recompute.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <memory>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include "composer/core/error.h"
#include "composer/core/frozen.h"
#include "composer/util/own_random.h"
#include "composer/util/random_state.h"

namespace composer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The autocast settings of this thread.
class AutocastState {
 public:
  AutocastState() : cache_(at::autocast::is_autocast_cache_enabled()) {
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      enabled_[i] = at::autocast::is_autocast_enabled(kTypes[i]);
      dtype_[i] = at::autocast::get_autocast_dtype(kTypes[i]);
    }
  }
  void restore() const {
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      at::autocast::set_autocast_enabled(kTypes[i], enabled_[i]);
      at::autocast::set_autocast_dtype(kTypes[i], dtype_[i]);
    }
    at::autocast::set_autocast_cache_enabled(cache_);
  }

 private:
  static constexpr const auto& kTypes = at::autocast::_AUTOCAST_SUPPORTED_DEVICES;  // of all devices
  std::array<bool, kTypes.size()> enabled_{};
  std::array<at::ScalarType, kTypes.size()> dtype_{};
  bool cache_;
};

// Everything that the outputs of a segment depend on besides its inputs, captured at construction.
struct CallContext {
  explicit CallContext(at::TensorList inputs) {
    for (const at::Tensor& input : inputs) random.add(input.device());
  }
  OwnRandom own = current_random();  // the backward pass on a GPU runs on another thread
  RandomState random;
  AutocastState autocast;
};

// Restores a context that was captured earlier, for this scope.
class CallContextScope {
 public:
  CallContextScope(const CallContext& then, at::TensorList inputs) : draws_(then.own), now_(inputs) {
    at::autocast::increment_nesting();
    then.random.restore();
    then.autocast.restore();
  }
  ~CallContextScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    now_.autocast.restore();
    now_.random.restore();
  }
  CallContextScope(const CallContextScope&) = delete;
  CallContextScope& operator=(const CallContextScope&) = delete;

 private:
  RandomScope draws_;
  CallContext now_;
};

// Disables autocast's cache: weights that were converted without gradients must not be reused where gradients are
// recorded.
class NoAutocastCache {
 public:
  NoAutocastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoAutocastCache() { state_.restore(); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  AutocastState state_;
};

std::atomic<int> pending = 0;

struct Recording final : torch::CustomClassHolder {
  Recording(Segment segment, at::TensorList inputs) : fn(std::move(segment)), call_context(inputs) { ++pending; }
  ~Recording() override { finish(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  void finish() {
    if (!done.exchange(true)) --pending;
  }
  std::atomic<bool> done = false;  // its gradients have been computed
  Segment fn;
  CallContext call_context;
  std::vector<at::Tensor> frozen = Frozen::all();  // the object that has frozen them ends before the backward pass
};

variable_list run(const Segment& fn, const variable_list& inputs) {
  variable_list outputs = fn(inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].defined()) throw ConfigError("checkpoint: output ", i, " of the function is undefined");
  return outputs;
}

struct Recompute final : torch::autograd::Function<Recompute> {
  // `anchor` requires gradients, so that there is a backward pass even if no input requires any.
  static variable_list forward(AutogradContext* context, const Segment& fn, const at::Tensor& /*anchor*/,
                               at::TensorList inputs) {
    context->set_materialize_grads(false);
    context->saved_data["recording"] = c10::IValue::make_capsule(c10::make_intrusive<Recording>(fn, inputs));
    context->save_for_backward(inputs.vec());
    const NoAutocastCache no_cache;
    return run(fn, inputs.vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) throw ConfigError("checkpoint: has no gradients of gradients (create_graph)");
    if (!torch::autograd::Engine::get_default_engine().is_checkpoint_valid())
      throw ConfigError("checkpoint: works with backward(), not with torch::autograd::grad()");
    const auto recording = c10::static_intrusive_pointer_cast<Recording>(context->saved_data["recording"].toCapsule());

    const variable_list saved = context->get_saved_variables();
    variable_list inputs;
    for (const at::Tensor& input : saved) inputs.push_back(input.detach().set_requires_grad(input.requires_grad()));
    variable_list roots, root_gradients;
    {
      const at::AutoGradMode enable_grad(true);
      variable_list outputs;
      {
        const CallContextScope as_before(recording->call_context, inputs);
        const Frozen frozen(recording->frozen);
        outputs = run(recording->fn, inputs);
      }
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
        roots.push_back(std::move(outputs[i]));
        root_gradients.push_back(gradients[i]);
      }
    }
    if (!roots.empty()) torch::autograd::backward(roots, root_gradients);
    recording->finish();

    variable_list of_inputs(2);  // the function and the anchor get no gradients
    for (const at::Tensor& input : inputs) of_inputs.push_back(input.grad());
    return of_inputs;
  }
};

}  // namespace

int pending_checkpoints() { return pending; }

std::vector<at::Tensor> checkpoint(Segment fn, const std::vector<at::Tensor>& inputs) {
  if (!fn) throw ConfigError("checkpoint: the function is empty");
  if (!at::GradMode::is_enabled()) return run(fn, inputs);
  const at::Tensor anchor = at::empty({0}).requires_grad_();
  const auto is_defined = [](const at::Tensor& input) { return input.defined(); };
  if (std::ranges::all_of(inputs, is_defined)) return Recompute::apply(fn, anchor, at::TensorList(inputs));

  std::vector<at::Tensor> defined;  // autograd rejects undefined gradients
  std::ranges::copy_if(inputs, std::back_inserter(defined), is_defined);
  std::vector<bool> places;
  std::ranges::transform(inputs, std::back_inserter(places), is_defined);
  const Segment with_gaps = [fn = std::move(fn), places = std::move(places)](const std::vector<at::Tensor>& given) {
    std::vector<at::Tensor> all(places.size());
    for (std::size_t i = 0, next = 0; i < all.size(); ++i)
      if (places[i]) all[i] = given[next++];
    return fn(all);
  };
  return Recompute::apply(with_gaps, anchor, at::TensorList(defined));
}

at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> fn, const at::Tensor& input) {
  if (!fn) throw ConfigError("checkpoint: the function is empty");
  const Segment segment = [fn = std::move(fn)](const std::vector<at::Tensor>& inputs) {
    return std::vector<at::Tensor>{fn(inputs.front())};
  };
  return checkpoint(segment, std::vector<at::Tensor>{input}).front();
}

}  // namespace composer

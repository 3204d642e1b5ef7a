#include "composer/dist/gradient_reducer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "composer/core/error.h"
#include "composer/device/device_support.h"
#include "composer/dist/bf16_hook.h"
#include "composer/dist/reached.h"
#include "composer/util/recompute.h"

namespace composer::dist {
namespace {

// Runs the function in a hook of a backward pass: the Reducer finishes in a callback of the backward pass that calls
// its last hook.
void in_a_backward_pass(const std::function<void()>& run) {
  const at::AutoGradMode with_grad(true);
  at::Tensor anchor = at::zeros({}).set_requires_grad(true);
  anchor.register_hook([&](const at::Tensor&) { run(); });
  anchor.backward();
}

// Allocates host memory for a copy of the tensor; from a GPU, the copy can be made without the host waiting.
at::Tensor on_host_for(const at::Tensor& tensor) {
  const bool pinned = device_support(tensor.device().type()).pins_memory();
  return at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(pinned).requires_grad(false));
}

using Accumulator = decltype(torch::autograd::impl::grad_accumulator(std::declval<at::Tensor>()));

}  // namespace

struct GradientReducer::Core {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  struct Hook {
    Accumulator accumulator;  // kept here, because a parameter does not keep its accumulator alive
    std::uintptr_t key;
  };

  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  std::vector<std::size_t> indices;  // of our parameters among the reducer's; kNone: the parameter has no elements
  std::size_t hidden = 0;            // index of the hidden parameter
  std::vector<Hook> hooks;           // one for each of our parameters
};

// Fractions of the ranks that had a gradient and that missed one, for each parameter.
struct GradientReducer::Counts {
  at::Tensor on_host;
  std::optional<c10::Event> arrived;  // unset: on_host is complete already
  std::vector<std::size_t> missing_here;
};

GradientReducer::GradientReducer(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                 std::vector<at::Tensor> parameters, std::vector<std::string> names,
                                 const Options& options)
    : parameters_(std::move(parameters)), names_(std::move(names)), core_(std::make_unique<Core>()) {
  const auto count = static_cast<std::int64_t>(parameters_.size());
  std::vector<at::Tensor> reduced;
  for (const at::Tensor& parameter : parameters_) {
    core_->indices.push_back(parameter.numel() > 0 ? reduced.size() : Core::kNone);
    if (parameter.numel() > 0) reduced.push_back(parameter);
  }
  core_->hidden = reduced.size();
  // The hidden parameter has the dtype whose bucket is probably the last.
  hidden_ = at::zeros({2 * count}, parameters_.front().options().requires_grad(false)).set_requires_grad(true);
  reduced.push_back(hidden_);

  const std::vector<bool> sparse(reduced.size(), false);
  // In the first step there is one bucket for each dtype. Afterwards the Reducer knows the order of gradients and
  // divides the buckets.
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(reduced, {std::numeric_limits<std::size_t>::max()}, sparse);
  std::ranges::reverse(buckets);
  {
    // Without this guard, gradients would be views in the sense of autograd, and zero_grad(false) would throw.
    const at::AutoDispatchBelowADInplaceOrView untracked;
    core_->reducer = std::make_shared<c10d::Reducer>(
        reduced, std::move(buckets), group, sparse, options.bucket_bytes, /*find_unused_parameters=*/false,
        /*gradient_as_bucket_view=*/true, std::unordered_map<std::size_t, std::string>(),
        std::min<std::int64_t>(options.bucket_bytes, c10d::kDefaultFirstBucketBytes),
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<std::int64_t>());
  }
  core_->logger = std::make_shared<c10d::Logger>(core_->reducer);  // some errors of the Reducer crash without one
  core_->reducer->set_logger(core_->logger);
  core_->reducer->remove_autograd_hooks();
  if (options.in_bf16) core_->reducer->register_comm_hook(bf16_hook(group));

  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i]);
    const auto key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, i](const std::vector<at::Tensor>& results, const std::vector<at::Tensor>&) {
          arrived(i);
          return results;
        }));
    core_->hooks.push_back({accumulator, key});
  }
}

GradientReducer::~GradientReducer() {
  for (const Core::Hook& hook : core_->hooks) hook.accumulator->del_post_hook(hook.key);
}

void GradientReducer::before_forward() {
  const at::AutoDispatchBelowADInplaceOrView untracked;
  core_->reducer->prepare_for_forward();
  core_->reducer->rebuild_buckets();
}

void GradientReducer::begin(const std::vector<at::Tensor>* outputs) {
  passed_on_.assign(parameters_.size(), false);
  present_.assign(parameters_.size(), false);
  core_->reducer->prepare_for_backward({});
  has_begun_ = true;
  if (!outputs || pending_checkpoints() > 0) return;
  const std::unordered_set<const void*> reached = nodes_behind(*outputs);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!reached.contains(core_->hooks[i].accumulator.get())) pass_on(i);
}

// If a checkpoint() segment has not run yet, it may add to this gradient, so the gradient is left to finish().
void GradientReducer::arrived(std::size_t index) {
  if (!has_begun_) return;
  if (passed_on_[index])
    throw ConfigError("data parallel: ", names_[index], " got another gradient after its own had been complete. Call ",
                      "backward() once between before_backward() and after_backward(), and use checkpoint() for ",
                      "segments that are computed again");
  if (pending_checkpoints() == 0) pass_on(index);
}

void GradientReducer::pass_on(std::size_t index) {
  const at::Tensor& gradient = parameters_[index].mutable_grad();
  if (gradient.defined() && gradient.layout() != at::kStrided)
    throw ConfigError("data parallel: cannot average the sparse gradient of ", names_[index],
                      ". Make it dense, e.g. an embedding's by sparse(false)");
  passed_on_[index] = true;
  present_[index] = gradient.defined();
  if (core_->indices[index] != Core::kNone) core_->reducer->autograd_hook(core_->indices[index]);
}

void GradientReducer::finish(bool must_have) {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!passed_on_[i]) pass_on(i);
  has_begun_ = false;
  must_have_ = must_have;

  const std::size_t count = parameters_.size();
  std::vector<float> flags(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    flags[i] = present_[i] ? 1.f : 0.f;
    flags[count + i] = must_have && !present_[i] ? 1.f : 0.f;
  }
  set_hidden_gradient(flags);
  in_a_backward_pass([&] { core_->reducer->autograd_hook(core_->hidden); });
}

void GradientReducer::set_hidden_gradient(const std::vector<float>& flags) {
  if (!on_device_.defined() || flags != flags_) {
    const at::Tensor own = on_host_for(hidden_);
    own.copy_(at::tensor(flags));
    on_device_ = own.to(hidden_.device(), /*non_blocking=*/true);
    flags_ = flags;
  }
  at::Tensor& gradient = hidden_.mutable_grad();  // the Reducer writes its result into this gradient
  if (gradient.defined())
    gradient.copy_(on_device_);
  else
    gradient = on_device_.clone();
}

std::shared_ptr<const GradientReducer::Counts> GradientReducer::start_counts() const {
  const auto counts = std::make_shared<Counts>();
  for (std::size_t i = 0; must_have_ && i < parameters_.size(); ++i)
    if (!present_[i]) counts->missing_here.push_back(i);
  counts->on_host = on_host_for(hidden_);
  counts->on_host.copy_(hidden_.grad(), /*non_blocking=*/true);
  if (const at::Device device = hidden_.device(); !device.is_cpu()) {
    counts->arrived.emplace(device.type());
    counts->arrived->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  return counts;
}

GradientReducer::Summary GradientReducer::summary(const Counts& counts) {
  if (counts.arrived) counts.arrived->synchronize();
  const at::Tensor all = counts.on_host.to(at::kFloat);
  const auto* flags = all.const_data_ptr<float>();
  return {.any_missing = std::any_of(flags + all.numel() / 2, flags + all.numel(), [](float flag) { return flag > 0; }),
          .missing_here = counts.missing_here};
}

void GradientReducer::drop_absent() const {
  if (std::ranges::find(present_, false) == present_.end()) return;
  const at::Tensor all = hidden_.grad().to(at::kCPU, at::kFloat);
  const auto* flags = all.const_data_ptr<float>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (present_[i]) continue;
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (flags[i] == 0)
      gradient.reset();
    else if (core_->indices[i] == Core::kNone)
      gradient = at::zeros_like(parameters_[i].detach());
  }
}

}  // namespace composer::dist

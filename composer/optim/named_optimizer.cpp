#include "composer/optim/named_optimizer.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ne.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "composer/core/error.h"
#include "composer/optim/batch.h"
#include "composer/optim/groups.h"
#include "composer/util/recompute.h"

namespace composer::optim {

using detail::Batch;

// Runs when a parameter's gradient is complete. There is room for one hook only, so it runs the one before it, too.
struct NamedOptimizer::Hook final : torch::autograd::PostAccumulateGradHook {
  using Other = std::unique_ptr<torch::autograd::PostAccumulateGradHook>;
  Hook(std::shared_ptr<NamedOptimizer*> owner, std::size_t in_group, std::size_t at_index, Other other)
      : optimizer(std::move(owner)), group(in_group), index(at_index), before(std::move(other)) {}
  void operator()(const at::Tensor& parameter) override {
    if (before) (*before)(parameter);
    if (*optimizer) (*optimizer)->complete(group, index);
  }

  std::shared_ptr<NamedOptimizer*> optimizer;
  std::size_t group, index;
  Other before;
};

NamedOptions::~NamedOptions() = default;

NamedOptimizer::NamedOptimizer(std::string who, std::vector<const char*> state_keys,
                               std::vector<detail::BuiltGroup> groups, bool step_in_backward)
    : torch::optim::Optimizer(std::vector<torch::optim::OptimizerParamGroup>{}, groups.front().options->clone()),
      who_(std::move(who)),
      state_keys_(std::move(state_keys)),
      in_backward_(step_in_backward),
      self_(std::make_shared<NamedOptimizer*>(this)),
      scratch_(std::make_unique<detail::Scratch>()) {
  for (detail::BuiltGroup& group : groups) {
    std::vector<at::Tensor> tensors;
    std::vector<std::string>& names = names_.emplace_back();
    for (NamedParameter& parameter : group.parameters) {
      tensors.push_back(std::move(parameter.tensor));
      names.push_back(std::move(parameter.name));
    }
    // not add_param_group(), which gives options that equal a default the value of another one
    param_groups_.emplace_back(std::move(tensors), std::move(group.options));
  }
  if (!in_backward_) return;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    completions_.emplace_back(param_groups_[g].params().size());
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) hook(g, i);
  }
}

NamedOptimizer::~NamedOptimizer() {
  *self_ = nullptr;
  if (!in_backward_) return;
  for (const auto& group : param_groups_)
    for (const at::Tensor& parameter : group.params()) unhook(parameter);
}

void NamedOptimizer::hook(std::size_t group, std::size_t index) {
  const at::Tensor& parameter = param_groups_[group].params()[index];
  Hook::Other before;
  if (torch::autograd::impl::get_autograd_meta(parameter))
    before = std::move(torch::autograd::impl::post_acc_grad_hooks(parameter));
  torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                 std::make_unique<Hook>(self_, group, index, std::move(before)));
}

// Leaves a hook that came later; ours below it does nothing once we have gone.
void NamedOptimizer::unhook(const at::Tensor& parameter) const {
  if (!torch::autograd::impl::get_autograd_meta(parameter)) return;
  auto& present = torch::autograd::impl::post_acc_grad_hooks(parameter);
  auto* ours = dynamic_cast<Hook*>(present.get());
  if (!ours || ours->optimizer != self_) return;
  Hook::Other before = std::move(ours->before);
  present = std::move(before);
}

at::Tensor NamedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    begin_in_backward();
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  if (in_backward_)
    finish_in_backward();
  else
    update_all({});
  return loss;
}

void NamedOptimizer::step_unless(const at::Tensor& found_inf) {
  if (in_backward_)
    throw ConfigError(who_, ": step_unless() requires all gradients, and step_in_backward does not keep them");
  if (!found_inf.defined() || found_inf.numel() != 1 || found_inf.scalar_type() != at::kFloat)
    throw ConfigError(who_, ": found_inf must be a tensor of one float");
  update_all(found_inf);
}

bool NamedOptimizer::elementwise(const Options&) const { return false; }
void NamedOptimizer::describe(detail::Slice&, ParameterState&, const Options&) {}
bool NamedOptimizer::obeys_found_inf(const Batch&, const Options&) const { return false; }
bool NamedOptimizer::takes_sparse(const Options&) const { return false; }
void NamedOptimizer::update_sparse(at::Tensor&, const at::Tensor&, ParameterState&, const Options&) {}

std::string NamedOptimizer::name_of(std::size_t group, std::size_t index) const {
  if (group < names_.size() && index < names_[group].size()) return names_[group][index];
  return join("group ", group, ", parameter ", index);  // added behind our back
}

ParameterState& NamedOptimizer::state_of(const at::Tensor& parameter, const Options& options) {
  auto& state = state_[parameter.unsafeGetTensorImpl()];
  if (!state) {
    state = std::make_unique<ParameterState>();
    static_cast<ParameterState&>(*state).shape = parameter.sizes().vec();
  }
  auto& ours = static_cast<ParameterState&>(*state);
  prepare(parameter, ours, options);
  return ours;
}

// Of all parameters, before any is changed: a step is made as a whole or not at all.
void NamedOptimizer::check_gradient(std::size_t group, std::size_t index) const {
  const at::Tensor& parameter = param_groups_[group].params()[index];
  const at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) return;
  if (gradient.layout() != at::kStrided && !(gradient.is_sparse() && takes_sparse(param_groups_[group].options())))
    throw ConfigError(who_, ": cannot use the sparse gradient of ", name_of(group, index),
                      ". Make it dense, e.g. an embedding's by sparse(false)");
  if (gradient.sizes() != parameter.sizes() || gradient.device() != parameter.device())
    throw ConfigError(who_, ": the gradient of ", name_of(group, index), " is ", gradient.sizes(), " on ",
                      gradient.device(), ", the parameter ", parameter.sizes(), " on ", parameter.device());
  const auto known = state_.find(parameter.unsafeGetTensorImpl());
  if (known == state_.end()) return;
  const at::IntArrayRef shape = static_cast<const ParameterState&>(*known->second).shape;
  if (parameter.sizes() != shape)
    throw ConfigError(who_, ": the parameter ", name_of(group, index), " has the shape ", parameter.sizes(),
                      ", but its state was made for ", shape, ". Call replace_parameter()");
}

// A parameter that was converted or moved takes its state along.
void NamedOptimizer::fit_state(const at::Tensor& parameter, ParameterState& state) const {
  for (std::size_t i = 0; i < state_keys_.size(); ++i) {
    at::Tensor& tensor = state.tensors[i];
    if (!tensor.defined()) continue;
    const bool alike = tensor.sizes() == parameter.sizes() && state_keys_[i] != std::string_view("step");
    if (!alike) {
      if (tensor.device() != parameter.device()) tensor = tensor.to(parameter.device());
    } else if (tensor.scalar_type() != parameter.scalar_type() || tensor.device() != parameter.device() ||
               (parameter.is_non_overlapping_and_dense() && !detail::same_layout(tensor, parameter))) {
      tensor = at::empty_like(parameter).copy_(tensor);
    }
  }
}

namespace {

// Whether it may be updated by loops over memory.
bool is_plain(const at::Tensor& parameter) {
  return parameter.is_non_overlapping_and_dense() && parameter.is_cpu() &&
         (parameter.scalar_type() == at::kDouble || parameter.scalar_type() == at::kFloat);
}

}  // namespace

// Puts the parameter into the slices or a batch, if it has a gradient.
void NamedOptimizer::collect(std::size_t group, std::size_t index, bool skip) {
  at::Tensor& parameter = param_groups_[group].params()[index];
  at::Tensor* gradient = &parameter.mutable_grad();
  if (!gradient->defined()) return;
  const Options& options = param_groups_[group].options();
  if (gradient->layout() != at::kStrided) {
    if (!skip) update_sparse(parameter, *gradient, state_of(parameter, options), options);
    return;
  }
  ParameterState& state = state_of(parameter, options);
  fit_state(parameter, state);

  const bool dense = parameter.is_non_overlapping_and_dense();
  if (gradient->scalar_type() != parameter.scalar_type() || (dense && !detail::same_layout(*gradient, parameter)))
    gradient = &scratch_->kept.emplace_back(at::empty_like(parameter).copy_(*gradient));
  if (is_plain(parameter) && elementwise(options)) {
    if (skip) return;
    detail::Slice slice{.p = parameter.mutable_data_ptr(),
                        .g = gradient->const_data_ptr(),
                        .n = parameter.numel(),
                        .is_double = parameter.scalar_type() == at::kDouble};
    describe(slice, state, options);
    scratch_->slices.push_back(slice);
    parameter.unsafeGetTensorImpl()->bump_version();
    return;
  }
  scratch_->batch_for(parameter, dense).add(parameter, *gradient, state);
}

// By tensor operations; on a device nobody waits for it.
void NamedOptimizer::update_batches(const Options& options, const at::Tensor& found_inf) {
  for (Batch& batch : scratch_->batches) {
    if (batch.p.empty()) continue;
    if (!found_inf.defined()) {
      update(batch, options);
    } else if (obeys_found_inf(batch, options)) {
      batch.found_inf = found_inf;
      update(batch, options);
    } else {
      const detail::Restore restore(batch, found_inf);
      update(batch, options);
      restore.where_found();
    }
    batch.clear();
  }
}

void NamedOptimizer::update_all(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  detail::Scratch& scratch = *scratch_;
  const detail::Scratch::Clear clear(scratch);
  const bool on_host = found_inf.defined() && found_inf.is_cpu();
  const bool skip = on_host && *found_inf.const_data_ptr<float>() != 0;
  const at::Tensor found = found_inf.defined() ? found_inf.ne(0).to(at::kFloat).reshape({}) : at::Tensor();
  if (found_inf.defined()) check_device(found_inf);
  // libtorch puts our defaults in the place of another optimizer's options, so these would be lost in silence.
  if (param_groups_.size() != names_.size())
    throw ConfigError(who_, ": add_param_group() is not supported; set groups in the options of ", who_);
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    const Options& options = param_groups_[g].options();
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      check_gradient(g, i);
      const at::Tensor& parameter = param_groups_[g].params()[i];
      if (found_inf.defined() && parameter.mutable_grad().defined() && !(is_plain(parameter) && elementwise(options)))
        obeys_found_inf(Batch(), options);  // throws if it cannot be skipped
    }
  }
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) collect(g, i, skip);
    update_batches(param_groups_[g].options(), found);
  }
  detail::update_slices(scratch.slices);
}

void NamedOptimizer::check_device(const at::Tensor& found_inf) const {
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      const at::Tensor& parameter = param_groups_[g].params()[i];
      if (parameter.device() != found_inf.device())
        throw ConfigError(who_, ": found_inf is on ", found_inf.device(), ", and the parameter ", name_of(g, i), " on ",
                          parameter.device());
    }
  }
}

// In the first step, a parameter that a pending checkpoint() may reach again is left to step(), which learns how often
// its gradient is completed.
void NamedOptimizer::complete(std::size_t group, std::size_t index) {
  const std::lock_guard lock(mutex_);
  Completions& completions = completions_.at(group).at(index);
  const bool pending = pending_checkpoints() > 0;
  sees_checkpoints_ = sees_checkpoints_ || pending;
  if (completions.updated && sees_checkpoints_)
    throw ConfigError(
        who_, ": step_in_backward already updated ", name_of(group, index),
        " in this step, but a checkpoint() segment computed another gradient for it, unlike in the first ",
        "step; set step_in_backward = false. In a loop of your own, call step() after each backward");
  ++completions.seen;
  if (completions.expected == 0 ? pending : completions.seen < completions.expected) return;
  update_one(group, index);
  completions.updated = true;
}

// Forgets what a step that ended by an error has left.
void NamedOptimizer::begin_in_backward() {
  sees_checkpoints_ = false;
  for (auto& group : completions_)
    for (Completions& completions : group) completions = {.expected = completions.expected};
}

// Updates what backward has reached less often than expected, or so that more could not be excluded.
void NamedOptimizer::finish_in_backward() {
  for (std::size_t g = 0; g < completions_.size(); ++g)
    for (std::size_t i = 0; i < completions_[g].size(); ++i) {
      Completions& completions = completions_[g][i];
      if (completions.seen > 0 && !completions.updated) update_one(g, i);
      if (sees_checkpoints_) completions.expected = std::max(completions.expected, completions.seen);
    }
  begin_in_backward();
}

void NamedOptimizer::update_one(std::size_t group, std::size_t index) {
  const at::NoGradGuard no_grad;
  {
    const detail::Scratch::Clear clear(*scratch_);
    check_gradient(group, index);
    collect(group, index, /*skip=*/false);
    update_batches(param_groups_[group].options(), {});
    detail::update_slices(scratch_->slices);
  }
  param_groups_[group].params()[index].mutable_grad().reset();
}

}  // namespace composer::optim

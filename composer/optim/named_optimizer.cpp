#include "composer/optim/named_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ne.h>

#include "composer/core/error.h"
#include "composer/optim/backward_steps.h"
#include "composer/optim/batch.h"
#include "composer/optim/groups.h"

namespace composer::optim {

using detail::Batch;

NamedOptions::~NamedOptions() = default;

NamedOptimizer::NamedOptimizer(std::string who, std::vector<const char*> state_keys,
                               std::vector<detail::BuiltGroup> groups, bool step_in_backward)
    : torch::optim::Optimizer(std::vector<torch::optim::OptimizerParamGroup>{}, groups.front().options->clone()),
      who_(std::move(who)),
      state_keys_(std::move(state_keys)),
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
  if (step_in_backward) begin_watching();
}

NamedOptimizer::NamedOptimizer(std::string who, const std::vector<std::shared_ptr<NamedOptimizer>>& parts)
    : torch::optim::Optimizer(std::vector<torch::optim::OptimizerParamGroup>{}, parts.front()->defaults().clone()),
      who_(std::move(who)),
      scratch_(std::make_unique<detail::Scratch>()) {
  const bool step_in_backward = parts.front()->steps_in_backward();
  for (const auto& part : parts) {
    part->end_watching();
    for (std::size_t g = 0; g < part->param_groups_.size(); ++g) {
      param_groups_.push_back(part->param_groups_[g]);
      names_.push_back(std::move(part->names_[g]));
      rules_.push_back(part->rules_.empty() ? part : part->rules_[g]);
    }
    part->param_groups_.clear();
    part->names_.clear();
  }
  if (step_in_backward) begin_watching();
}

NamedOptimizer::~NamedOptimizer() { end_watching(); }

void NamedOptimizer::begin_watching() {
  in_backward_ = std::make_unique<detail::BackwardSteps>(
      who_, [this](std::size_t group, std::size_t index) { update_one(group, index); },
      [this](std::size_t group, std::size_t index) { return name_of(group, index); });
  for (std::size_t g = 0; g < param_groups_.size(); ++g)
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i)
      in_backward_->watch(param_groups_[g].params()[i], g, i);
}

void NamedOptimizer::end_watching() {
  if (!in_backward_) return;
  for (const auto& group : param_groups_)
    for (const at::Tensor& parameter : group.params()) in_backward_->release(parameter);
  in_backward_.reset();
}

at::Tensor NamedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    if (in_backward_) in_backward_->begin();
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  if (in_backward_)
    in_backward_->finish();
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

ParameterState NamedOptimizer::empty_state(const at::Tensor& parameter) const {
  ParameterState state;
  state.keys = state_keys_;
  state.shape = parameter.sizes().vec();
  return state;
}

ParameterState& NamedOptimizer::state_of(std::size_t group, const at::Tensor& parameter) {
  auto& state = state_[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<ParameterState>(rule(group).empty_state(parameter));
  auto& ours = static_cast<ParameterState&>(*state);
  rule(group).prepare(parameter, ours, param_groups_[group].options());
  return ours;
}

// Of all parameters, before any is changed: a step is made as a whole or not at all.
void NamedOptimizer::check_gradient(std::size_t group, std::size_t index) const {
  const at::Tensor& parameter = param_groups_[group].params()[index];
  const at::Tensor& gradient = parameter.mutable_grad();
  if (!gradient.defined()) return;
  const NamedOptimizer& rule = this->rule(group);
  if (gradient.layout() != at::kStrided && !(gradient.is_sparse() && rule.takes_sparse(param_groups_[group].options())))
    throw ConfigError(rule.who_, ": cannot use the sparse gradient of ", name_of(group, index),
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

namespace {

// A parameter that was converted or moved takes its state along.
void fit_state(const at::Tensor& parameter, ParameterState& state) {
  for (std::size_t i = 0; i < state.keys.size(); ++i) {
    at::Tensor& tensor = state.tensors[i];
    if (!tensor.defined()) continue;
    const bool alike = tensor.sizes() == parameter.sizes() && state.keys[i] != std::string_view("step");
    if (!alike) {
      if (tensor.device() != parameter.device()) tensor = tensor.to(parameter.device());
    } else if (tensor.scalar_type() != parameter.scalar_type() || tensor.device() != parameter.device() ||
               (parameter.is_non_overlapping_and_dense() && !detail::same_layout(tensor, parameter))) {
      tensor = at::empty_like(parameter).copy_(tensor);
    }
  }
}

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
  NamedOptimizer& rule = mutable_rule(group);
  const Options& options = param_groups_[group].options();
  if (gradient->layout() != at::kStrided) {
    if (!skip) rule.update_sparse(parameter, *gradient, state_of(group, parameter), options);
    return;
  }
  ParameterState& state = state_of(group, parameter);
  fit_state(parameter, state);

  const bool dense = parameter.is_non_overlapping_and_dense();
  if (gradient->scalar_type() != parameter.scalar_type() || (dense && !detail::same_layout(*gradient, parameter)))
    gradient = &scratch_->kept.emplace_back(at::empty_like(parameter).copy_(*gradient));
  if (is_plain(parameter) && rule.elementwise(options)) {
    if (skip) return;
    detail::Slice slice{.p = parameter.mutable_data_ptr(),
                        .g = gradient->const_data_ptr(),
                        .n = parameter.numel(),
                        .is_double = parameter.scalar_type() == at::kDouble};
    rule.describe(slice, state, options);
    scratch_->slices.push_back(slice);
    parameter.unsafeGetTensorImpl()->bump_version();
    return;
  }
  scratch_->batch_for(parameter, dense).add(parameter, *gradient, state);
}

// By tensor operations; on a device nobody waits for it.
void NamedOptimizer::update_batches(std::size_t group, const at::Tensor& found_inf) {
  NamedOptimizer& rule = mutable_rule(group);
  const Options& options = param_groups_[group].options();
  for (Batch& batch : scratch_->batches) {
    if (batch.p.empty()) continue;
    if (!found_inf.defined()) {
      rule.update(batch, options);
    } else if (rule.obeys_found_inf(batch, options)) {
      batch.found_inf = found_inf;
      rule.update(batch, options);
    } else {
      const detail::Restore restore(batch, found_inf);
      rule.update(batch, options);
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
    throw ConfigError(who_,
                      ": add_param_group() is not supported; give the groups, or the parts of combined(), when you "
                      "make the optimizer");
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    const NamedOptimizer& rule = this->rule(g);
    const Options& options = param_groups_[g].options();
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      check_gradient(g, i);
      const at::Tensor& parameter = param_groups_[g].params()[i];
      if (!found_inf.defined() || !parameter.mutable_grad().defined()) continue;
      if (is_plain(parameter) && rule.elementwise(options)) continue;
      rule.obeys_found_inf(Batch(), options);  // throws if it cannot be skipped
    }
  }
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) collect(g, i, skip);
    update_batches(g, found);
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

void NamedOptimizer::update_one(std::size_t group, std::size_t index) {
  const at::NoGradGuard no_grad;
  {
    const detail::Scratch::Clear clear(*scratch_);
    check_gradient(group, index);
    collect(group, index, /*skip=*/false);
    update_batches(group, {});
    detail::update_slices(scratch_->slices);
  }
  param_groups_[group].params()[index].mutable_grad().reset();
}

}  // namespace composer::optim

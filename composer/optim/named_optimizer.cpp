#include "composer/optim/named_optimizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "composer/core/error.h"
#include "composer/optim/groups.h"
#include "composer/optim/slices.h"

namespace composer::optim {
namespace {

using torch::optim::OptimizerParamGroup;

// Equal but for the strides of dimensions of one element.
bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  const at::IntArrayRef left = a.strides(), right = b.strides();
  if (left == right) return true;
  for (std::size_t d = 0; d < left.size(); ++d)
    if (left[d] != right[d] && a.size(static_cast<std::int64_t>(d)) != 1) return false;
  return true;
}

bool has_kernel(const at::Tensor& parameter) {
  return parameter.is_cpu() && (parameter.scalar_type() == at::kFloat || parameter.scalar_type() == at::kDouble) &&
         parameter.is_non_overlapping_and_dense();
}

std::vector<OptimizerParamGroup> bare(const std::vector<detail::BuiltGroup>& built) {
  std::vector<OptimizerParamGroup> groups;
  for (const detail::BuiltGroup& group : built) {
    std::vector<at::Tensor> tensors;
    for (const NamedParameter& parameter : group.parameters) tensors.push_back(parameter.tensor);
    groups.emplace_back(std::move(tensors));
  }
  return groups;
}

NamedOptions& named(torch::optim::OptimizerOptions& options) { return dynamic_cast<NamedOptions&>(options); }

}  // namespace

struct NamedOptimizer::Entry {
  std::string name;
  const void* parameter = nullptr;  // whose state this is
  ParameterState* state = nullptr;
};

struct NamedOptimizer::Scratch {  // lives between steps only to keep its memory
  std::vector<detail::Slice> slices;
  std::vector<at::Tensor> gradients;  // that were laid out anew
};

struct NamedOptimizer::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(NamedOptimizer& optimizer, std::size_t group, std::size_t index)
      : optimizer(optimizer), group(group), index(index) {}
  void operator()(const at::Tensor&) override { optimizer.update_one(group, index); }

  NamedOptimizer& optimizer;
  std::size_t group, index;
};

NamedOptions::~NamedOptions() = default;

NamedOptimizer::NamedOptimizer(std::string who, std::vector<const char*> state_keys,
                               std::vector<detail::BuiltGroup> groups, bool step_in_backward)
    : Optimizer(bare(groups), groups.front().options->clone()),
      who_(std::move(who)),
      state_keys_(std::move(state_keys)),
      in_backward_(step_in_backward),
      scratch_(std::make_unique<Scratch>()) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    // Not by add_param_group: libtorch would put the defaults in the place of options that equal its own.
    param_groups_[i].set_options(std::move(groups[i].options));
    std::vector<Entry>& entries = entries_.emplace_back();
    for (NamedParameter& parameter : groups[i].parameters) entries.push_back({.name = std::move(parameter.name)});
  }
  for (std::size_t group = 0; in_backward_ && group < entries_.size(); ++group)
    for (std::size_t i = 0; i < entries_[group].size(); ++i) hook(group, i);
}

NamedOptimizer::~NamedOptimizer() {
  if (!in_backward_) return;
  for (const OptimizerParamGroup& group : param_groups())
    for (const at::Tensor& parameter : group.params())
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

void NamedOptimizer::hook(std::size_t group, std::size_t index) {
  torch::autograd::impl::set_post_acc_grad_hooks(param_groups_[group].params()[index],
                                                 std::make_unique<Hook>(*this, group, index));
}

bool NamedOptimizer::describe(detail::Slice&, ParameterState&, const Options&) { return false; }

at::Tensor NamedOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  if (!in_backward_) update_all({});
  return loss;
}

void NamedOptimizer::step_unless(const at::Tensor& found_inf) {
  if (in_backward_)
    throw ConfigError(who_, ": step_in_backward has changed the weights already when a scaler could say no; ",
                      "use fp32 or amp_bf16, or set it to false");
  if (!found_inf.is_cpu()) return update_all(found_inf);
  if (*found_inf.const_data_ptr<float>() == 0) update_all({});
}

void NamedOptimizer::update_all(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  scratch_->slices.clear();
  for (std::size_t group = 0; group < entries_.size(); ++group)
    for (std::size_t i = 0; i < entries_[group].size(); ++i) collect(group, i, found_inf);
  detail::run(scratch_->slices);
  scratch_->gradients.clear();
}

void NamedOptimizer::update_one(std::size_t group, std::size_t index) {
  const std::lock_guard lock(mutex_);
  const at::NoGradGuard no_grad;
  scratch_->slices.clear();
  collect(group, index, {});
  detail::run(scratch_->slices);
  scratch_->gradients.clear();
  param_groups_[group].params()[index].mutable_grad().reset();
}

NamedOptimizer::Entry& NamedOptimizer::entry(std::size_t group, std::size_t index) {
  Entry& entry = entries_[group][index];
  const at::Tensor& parameter = param_groups_[group].params()[index];
  if (entry.parameter == parameter.unsafeGetTensorImpl()) return entry;
  auto& state = state_[parameter.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<ParameterState>();
  entry.parameter = parameter.unsafeGetTensorImpl();
  entry.state = static_cast<ParameterState*>(state.get());
  return entry;
}

// Laid out as the parameter where that is dense. Throws Error for one that does not belong to it.
at::Tensor NamedOptimizer::fitted_gradient(const at::Tensor& parameter, const std::string& name) const {
  const at::Tensor& gradient = parameter.grad();
  if (gradient.layout() != at::kStrided)
    throw Error(who_, ": the gradient of ", name, " is sparse, which this optimizer cannot use; make it dense");
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.device() != parameter.device())
    throw Error(who_, ": ", name, " is ", parameter.scalar_type(), " on ", parameter.device(), ", its gradient ",
                gradient.scalar_type(), " on ", gradient.device());
  if (!gradient.sizes().equals(parameter.sizes()))
    throw Error(who_, ": ", name, " has the shape ", parameter.sizes(), ", its gradient ", gradient.sizes());
  if (!parameter.is_non_overlapping_and_dense() || same_layout(parameter, gradient)) return gradient;
  return at::empty_like(parameter).copy_(gradient);
}

// The parameter may have been moved or laid out anew since its last step.
void NamedOptimizer::fit_state(const at::Tensor& parameter, ParameterState& state) const {
  for (at::Tensor& tensor : state.tensors) {
    if (!tensor.defined()) continue;
    const bool count = tensor.dim() == 0 && parameter.dim() > 0;
    if (tensor.device() != parameter.device()) tensor = tensor.to(parameter.device());
    if (count || !tensor.sizes().equals(parameter.sizes()) || same_layout(parameter, tensor)) continue;
    if (parameter.is_non_overlapping_and_dense())
      tensor = at::empty_like(parameter, parameter.options().dtype(tensor.scalar_type())).copy_(tensor);
  }
}

void NamedOptimizer::collect(std::size_t group, std::size_t index, const at::Tensor& found_inf) {
  OptimizerParamGroup& owner = param_groups_[group];
  at::Tensor& parameter = owner.params()[index];
  if (!parameter.grad().defined()) return;
  const Entry& known = entry(group, index);
  at::Tensor gradient = fitted_gradient(parameter, known.name);
  ParameterState& state = *known.state;
  if (state.fresh)
    prepare(parameter, state, owner.options());
  else
    fit_state(parameter, state);
  detail::Slice slice{.update = {},
                      .p = nullptr,
                      .g = nullptr,
                      .a = nullptr,
                      .b = nullptr,
                      .c = nullptr,
                      .n = parameter.numel(),
                      .is_double = parameter.scalar_type() == at::kDouble};
  if (has_kernel(parameter) && describe(slice, state, owner.options())) {
    slice.p = parameter.mutable_data_ptr();
    slice.g = gradient.const_data_ptr();
    scratch_->slices.push_back(slice);
    scratch_->gradients.push_back(std::move(gradient));
  } else {
    update_by_operations(parameter, gradient, state, owner.options(), found_inf);
  }
  state.fresh = false;
}

void NamedOptimizer::update_by_operations(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
                                          const Options& options, const at::Tensor& found_inf) {
  if (!found_inf.defined()) return update(parameter, gradient, state, options);
  const at::Tensor before = parameter.clone();
  std::vector<std::pair<at::Tensor, at::Tensor>> states;
  for (at::Tensor& tensor : state.tensors)
    if (tensor.defined()) states.emplace_back(tensor, tensor.clone());
  update(parameter, gradient, state, options);
  const at::Tensor skip = found_inf.ne(0);
  parameter.copy_(at::where(skip, before, parameter));
  for (auto& [tensor, old] : states) tensor.copy_(at::where(skip.reshape({}), old, tensor));
}

std::vector<StateTensor> NamedOptimizer::state_tensors() const {
  std::vector<StateTensor> tensors;
  for (std::size_t group = 0; group < entries_.size(); ++group) {
    for (std::size_t i = 0; i < entries_[group].size(); ++i) {
      const auto found = state().find(param_groups()[group].params()[i].unsafeGetTensorImpl());
      if (found == state().end()) continue;
      const auto& of = static_cast<const ParameterState&>(*found->second);
      for (std::size_t key = 0; !of.fresh && key < state_keys_.size(); ++key)
        if (of.tensors[key].defined()) tensors.push_back({entries_[group][i].name, state_keys_[key], of.tensors[key]});
    }
  }
  return tensors;
}

void NamedOptimizer::load_state_tensors(const std::vector<StateTensor>& tensors) {
  std::map<std::string, std::map<std::string, at::Tensor>> given;
  for (const StateTensor& tensor : tensors)
    if (!given[tensor.parameter].emplace(tensor.key, tensor.tensor).second)
      throw ConfigError(who_, ": the state has ", tensor.key, " of ", tensor.parameter, " twice");

  const at::NoGradGuard no_grad;
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, ParameterState>> made;
  for (std::size_t group = 0; group < entries_.size(); ++group) {
    for (std::size_t i = 0; i < entries_[group].size(); ++i) {
      const std::string& name = entries_[group][i].name;
      const at::Tensor& parameter = param_groups()[group].params()[i];
      ParameterState& state = made.emplace_back(std::pair(group, i), ParameterState()).second;
      const auto found = given.find(name);
      if (found == given.end()) continue;
      prepare(parameter, state, param_groups()[group].options());
      state.fresh = false;
      for (std::size_t key = 0; key < state_keys_.size(); ++key) {
        if (!state.tensors[key].defined()) continue;
        const auto node = found->second.extract(state_keys_[key]);
        if (node.empty()) throw ConfigError(who_, ": the state of ", name, " has no ", state_keys_[key]);
        if (!node.mapped().sizes().equals(state.tensors[key].sizes()))
          throw ConfigError(who_, ": ", state_keys_[key], " of ", name, " must have the shape ",
                            state.tensors[key].sizes(), ", got ", node.mapped().sizes());
        state.tensors[key].copy_(node.mapped());
      }
      if (!found->second.empty())
        throw ConfigError(who_, ": the state of ", name, " has ", found->second.begin()->first,
                          ", which this optimizer does not keep");
      given.erase(found);
    }
  }
  if (!given.empty())
    throw ConfigError(who_, ": there is a state of ", given.begin()->first, ", and no such parameter");
  for (auto& [where, state] : made) *entry(where.first, where.second).state = std::move(state);
}

void NamedOptimizer::replace_parameter(const at::Tensor& before, at::Tensor now) {
  for (std::size_t group = 0; group < entries_.size(); ++group) {
    std::vector<at::Tensor>& parameters = param_groups_[group].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].is_same(before)) continue;
      detail::check_parameters(who_, {{entries_[group][i].name, now}});
      if (in_backward_) torch::autograd::impl::set_post_acc_grad_hooks(before, nullptr);
      state_.erase(before.unsafeGetTensorImpl());
      parameters[i] = std::move(now);
      entries_[group][i].parameter = nullptr;
      if (in_backward_) hook(group, i);
      return;
    }
  }
  throw ConfigError(who_, ": replace_parameter: the tensor of shape ", before.sizes(), " is none of the parameters");
}

std::string NamedOptimizer::table() const {
  std::ostringstream text;
  text << who_ << '\n';
  for (std::size_t group = 0; group < entries_.size(); ++group) {
    std::int64_t numbers = 0;
    const auto& parameters = param_groups()[group].params();
    for (const at::Tensor& parameter : parameters) numbers += parameter.numel();
    text << "  group " << group << ": " << parameters.size() << (parameters.size() == 1 ? " tensor, " : " tensors, ")
         << numbers << " numbers, from " << entries_[group].front().name << " to " << entries_[group].back().name
         << "\n   ";
    const auto options = param_groups()[group].options().clone();
    for (const auto& [name, value] : named(*options).fields()) {
      text << ' ' << name << '=';
      if (const auto* number = std::get_if<double*>(&value))
        text << **number;
      else
        text << (*std::get<bool*>(value) ? "true" : "false");
    }
    text << '\n';
  }
  return text.str();
}

void NamedOptimizer::save(torch::serialize::OutputArchive&) const {
  throw ConfigError(who_, ": is not saved by torch::save, which knows no names; use state_tensors()");
}

void NamedOptimizer::load(torch::serialize::InputArchive&) {
  throw ConfigError(who_, ": is not loaded by torch::load, which knows no names; use load_state_tensors()");
}

}  // namespace composer::optim

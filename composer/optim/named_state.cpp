// The state of an optimizer by name, and what else is done between steps.
#include <cmath>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "composer/core/error.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

std::vector<StateTensor> NamedOptimizer::state_tensors() const {
  std::vector<StateTensor> list;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      const at::Tensor& parameter = param_groups_[g].params()[i];
      const auto found = state_.find(parameter.unsafeGetTensorImpl());
      if (found == state_.end() && !parameter.requires_grad()) continue;
      ParameterState state;
      if (found != state_.end()) state = static_cast<const ParameterState&>(*found->second);
      prepare(parameter, state, param_groups_[g].options());
      for (std::size_t k = 0; k < state_keys_.size(); ++k)
        if (state.tensors[k].defined()) list.push_back({name_of(g, i), state_keys_[k], state.tensors[k]});
    }
  }
  return list;
}

void NamedOptimizer::load_state_tensors(const std::vector<StateTensor>& tensors) {
  using Key = std::pair<std::string_view, std::string_view>;
  std::map<Key, const at::Tensor*> given;
  for (const StateTensor& one : tensors)
    if (!given.emplace(Key(one.parameter, one.key), &one.tensor).second)
      throw ConfigError(who_, ": the state has ", one.key, " of ", one.parameter, " twice");

  struct Loaded {
    at::Tensor parameter;
    ParameterState state;
  };
  std::vector<Loaded> loaded;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      const std::string name = name_of(g, i);
      Loaded one{param_groups_[g].params()[i], {}};
      one.state.shape = one.parameter.sizes().vec();
      prepare(one.parameter, one.state, param_groups_[g].options());
      std::string missing;
      bool any = false;
      for (std::size_t k = 0; k < state_keys_.size(); ++k) {
        at::Tensor& tensor = one.state.tensors[k];
        const auto found = given.find({name, state_keys_[k]});
        if (found == given.end()) {
          if (tensor.defined()) missing = state_keys_[k];
          continue;
        }
        if (!tensor.defined())
          throw ConfigError(who_, ": the state has ", state_keys_[k], " of ", name, ", which these options do not use");
        if (found->second->sizes() != tensor.sizes())
          throw ConfigError(who_, ": ", state_keys_[k], " of ", name, " is ", found->second->sizes(),
                            " in the state, must be ", tensor.sizes());
        tensor.copy_(*found->second);
        any = true;
        given.erase(found);
      }
      if (!missing.empty() && (any || one.parameter.requires_grad()))
        throw ConfigError(who_, ": the state lacks ", missing, " of ", name);
      // a buffer of zeros is what a parameter without a gradient was saved with
      one.state.first = any && one.state.first && !one.state.tensors[0].any().item<bool>();
      if (any) loaded.push_back(std::move(one));
    }
  }
  if (!given.empty())
    throw ConfigError(who_, ": the state has ", given.begin()->first.second, " of ", given.begin()->first.first,
                      ", which is no parameter or no state of this optimizer");
  state_.clear();
  for (Loaded& one : loaded)
    state_[one.parameter.unsafeGetTensorImpl()] = std::make_unique<ParameterState>(std::move(one.state));
}

void NamedOptimizer::replace_parameter(const at::Tensor& before, at::Tensor now) {
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      at::Tensor& parameter = param_groups_[g].params()[i];
      if (!parameter.is_same(before)) continue;
      state_.erase(parameter.unsafeGetTensorImpl());
      if (in_backward_) unhook(parameter);
      parameter = std::move(now);
      if (in_backward_) hook(g, i);
      return;
    }
  }
  throw ConfigError(who_, ": the parameter to replace is not one of this optimizer's");
}

std::string NamedOptimizer::table() const {
  std::ostringstream text;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& tensors = param_groups_[g].params();
    std::int64_t elements = 0;
    for (const at::Tensor& tensor : tensors) elements += tensor.numel();
    text << "group " << g << ": " << tensors.size() << (tensors.size() == 1 ? " tensor, " : " tensors, ") << elements
         << " numbers:";
    for (std::size_t i = 0; i < tensors.size() && i < 3; ++i) text << ' ' << name_of(g, i);
    text << (tensors.size() > 3 ? " ...\n " : "\n ");
    const auto options = param_groups_[g].options().clone();  // fields() gives access
    for (const OptionField& field : dynamic_cast<NamedOptions&>(*options).fields()) {
      text << ' ' << field.name << ' ';
      if (const auto* number = std::get_if<double*>(&field.value))
        text << **number;
      else
        text << (*std::get<bool*>(field.value) ? "yes" : "no");
    }
    text << '\n';
  }
  return std::move(text).str();
}

void NamedOptimizer::save(torch::serialize::OutputArchive&) const {
  throw Error(who_, ": cannot be written by torch::save; write state_tensors()");
}
void NamedOptimizer::load(torch::serialize::InputArchive&) {
  throw Error(who_, ": cannot be read by torch::load; use load_state_tensors()");
}

}  // namespace composer::optim

// The state of an optimizer by name, and what else is done between steps.
#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "composer/optim/backward_steps.h"
#include "composer/optim/named_optimizer.h"
#include "composer/util/text.h"

namespace composer::optim {
namespace {

using FieldKey = std::pair<std::string_view, std::string_view>;  // parameter and key
using Given = std::map<FieldKey, const at::Tensor*>;

Given by_name(const std::vector<StateTensor>& tensors, const std::string& who) {
  Given given;
  for (const StateTensor& one : tensors)
    if (!given.emplace(FieldKey(one.parameter, one.key), &one.tensor).second)
      throw ConfigError(who, ": the state has ", one.key, " of ", one.parameter, " twice");
  return given;
}

// What is kept of one parameter.
struct NamedFields {
  const std::string& who;
  std::string parameter;
  std::span<const char* const> keys;

  // Copies what is given of it into a prepared state, and takes it away. False: nothing was given, as of a parameter
  // that was frozen when the state was saved, whether it is now or not: what is frozen is restored later.
  bool take(Given& given, ParameterState& state) const {
    const char* missing = nullptr;
    bool any = false;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      at::Tensor& tensor = state.tensors[k];
      const auto found = given.find({parameter, keys[k]});
      if (found == given.end()) {
        if (tensor.defined()) missing = keys[k];
        continue;
      }
      copy(*found->second, tensor, keys[k]);
      any = true;
      given.erase(found);
    }
    if (missing && any) throw ConfigError(who, ": the state lacks ", missing, " of ", parameter);
    // a buffer of zeros is what a parameter without a gradient was saved with
    state.first = any && state.first && !state.tensors[0].any().item<bool>();
    return any;
  }

  // Takes away what is given of a parameter whose state another process keeps.
  void skip(Given& given) const {
    for (const char* key : keys) given.erase({parameter, key});
  }

  void copy(const at::Tensor& from, at::Tensor& to, const char* key) const {
    if (!to.defined())
      throw ConfigError(who, ": the state has ", key, " of ", parameter, ", which these options do not use");
    if (from.sizes() != to.sizes())
      throw ConfigError(who, ": ", key, " of ", parameter, " is ", from.sizes(), " in the state, must be ", to.sizes());
    to.copy_(from);
  }
};

}  // namespace

NamedParameters NamedOptimizer::named_parameters() const {
  NamedParameters all;
  for (std::size_t g = 0; g < param_groups_.size(); ++g)
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i)
      all.push_back({name_of(g, i), param_groups_[g].params()[i]});
  return all;
}

std::vector<StateTensor> NamedOptimizer::state_tensors(const OwnsState& owns) const {
  std::vector<StateTensor> list;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      const at::Tensor& parameter = param_groups_[g].params()[i];
      const auto found = state_.find(parameter.unsafeGetTensorImpl());
      if (found == state_.end() && !parameter.requires_grad()) continue;
      if (owns && !owns(parameter)) continue;
      ParameterState state = rule(g).empty_state(parameter);
      if (found != state_.end()) state = static_cast<const ParameterState&>(*found->second);
      rule(g).prepare(parameter, state, param_groups_[g].options());
      for (std::size_t k = 0; k < state.keys.size(); ++k)
        if (state.tensors[k].defined()) list.push_back({name_of(g, i), state.keys[k], state.tensors[k]});
    }
  }
  return list;
}

at::Tensor NamedOptimizer::state_tensor(const at::Tensor& parameter, std::string_view key) const {
  const auto found = state_.find(parameter.unsafeGetTensorImpl());
  if (found == state_.end()) return {};
  const auto& state = static_cast<const ParameterState&>(*found->second);
  const auto at = std::ranges::find(state.keys, key);
  return at == state.keys.end() ? at::Tensor() : state.tensors.at(static_cast<std::size_t>(at - state.keys.begin()));
}

void NamedOptimizer::load_state_tensors(const std::vector<StateTensor>& tensors, const OwnsState& owns) {
  Given given = by_name(tensors, who_);
  std::vector<std::pair<at::Tensor, ParameterState>> loaded;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      const at::Tensor& parameter = param_groups_[g].params()[i];
      ParameterState state = rule(g).empty_state(parameter);
      const NamedFields fields{rule(g).who_, name_of(g, i), state.keys};
      if (owns && !owns(parameter)) {
        fields.skip(given);
        continue;
      }
      rule(g).prepare(parameter, state, param_groups_[g].options());
      if (fields.take(given, state)) loaded.emplace_back(parameter, std::move(state));
    }
  }
  if (!given.empty())
    throw ConfigError(who_, ": the state has ", given.begin()->first.second, " of ", given.begin()->first.first,
                      ", which is not a parameter or not a state of this optimizer");
  state_.clear();
  for (auto& [parameter, state] : loaded)
    state_[parameter.unsafeGetTensorImpl()] = std::make_unique<ParameterState>(std::move(state));
}

void NamedOptimizer::replace_parameter(const at::Tensor& before, at::Tensor now) {
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    for (std::size_t i = 0; i < param_groups_[g].params().size(); ++i) {
      at::Tensor& parameter = param_groups_[g].params()[i];
      if (!parameter.is_same(before)) continue;
      state_.erase(parameter.unsafeGetTensorImpl());
      if (in_backward_) in_backward_->release(parameter);
      parameter = std::move(now);
      if (in_backward_) in_backward_->watch(parameter, g, i);
      return;
    }
  }
  throw ConfigError(who_, ": replace_parameter(): the tensor to replace is not a parameter of this optimizer");
}

void NamedOptimizer::remove_parameter(const at::Tensor& parameter) {
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    std::vector<at::Tensor>& parameters = param_groups_[g].params();
    const auto found = std::ranges::find_if(parameters, [&](const at::Tensor& one) { return one.is_same(parameter); });
    if (found == parameters.end()) continue;
    const auto index = found - parameters.begin();
    state_.erase(found->unsafeGetTensorImpl());
    if (in_backward_)  // hooks know the places of parameters
      for (const at::Tensor& one : parameters) in_backward_->release(one);
    parameters.erase(found);
    names_.at(g).erase(names_[g].begin() + index);
    if (!in_backward_) return;
    in_backward_->erase(g, static_cast<std::size_t>(index));
    for (std::size_t i = 0; i < parameters.size(); ++i) in_backward_->watch(parameters[i], g, i);
    return;
  }
  throw ConfigError(who_, ": remove_parameter(): the tensor is not a parameter of this optimizer");
}

void NamedOptimizer::set_parameters(const std::vector<NamedParameters>& groups) {
  if (groups.size() != param_groups_.size() || names_.size() != groups.size())
    throw ConfigError(who_, ": set_parameters(): got ", groups.size(), " lists, must get ", names_.size());
  std::unordered_map<void*, std::string> known;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<at::Tensor>& parameters = param_groups_[g].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      known[parameters[i].unsafeGetTensorImpl()] = name_of(g, i);
      if (in_backward_) in_backward_->release(parameters[i]);
    }
    parameters.clear();
    names_[g].clear();
  }
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const auto& [name, tensor] : groups[g]) {
      const auto before = known.extract(tensor.unsafeGetTensorImpl());
      param_groups_[g].params().push_back(tensor);
      names_[g].push_back(name.empty() && before ? before.mapped() : name);
    }
  for (const auto& [parameter, name] : known) state_.erase(parameter);
  if (!in_backward_) return;
  in_backward_->clear();
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].size(); ++i) in_backward_->watch(param_groups_[g].params()[i], g, i);
}

std::string NamedOptimizer::table() const {
  util::OutText text;
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    const auto& tensors = param_groups_[g].params();
    std::int64_t elements = 0;
    for (const at::Tensor& tensor : tensors) elements += tensor.numel();
    text << "group " << g << (rules_.empty() ? "" : join(" (", rule(g).who_, ')')) << ": " << tensors.size()
         << (tensors.size() == 1 ? " tensor, " : " tensors, ") << elements << " numbers:";
    for (std::size_t i = 0; i < tensors.size() && i < 3; ++i) text << ' ' << name_of(g, i);
    text << (tensors.size() > 3 ? " ...\n " : "\n ");
    const StateDict options = dynamic_cast<const NamedOptions&>(param_groups_[g].options()).described();
    for (const auto& [name, value] : options.entries()) {
      const bool* const yes = std::get_if<bool>(&value);
      text << ' ' << name << ' ';
      if (yes)
        text << (*yes ? "yes" : "no");
      else
        text << std::get<double>(value);
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

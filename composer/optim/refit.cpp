#include "composer/optim/refit.h"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/optim/optimizer.h>

#include "composer/optim/named_optimizer.h"

namespace composer::optim {
namespace {

using ParameterKey = const void*;
ParameterKey key_of(const at::Tensor& parameter) { return parameter.unsafeGetTensorImpl(); }

std::unordered_set<ParameterKey> keys_of(const NamedParameters& parameters) {
  std::unordered_set<ParameterKey> keys;
  for (const auto& [name, tensor] : parameters) keys.insert(key_of(tensor));
  return keys;
}

// Splits a name into "layer1.0.conv" and "weight".
std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// The number of leading modules in common; 2 for "a.b.c" and "a.b.d".
std::size_t common_modules(std::string_view a, std::string_view b) {
  std::size_t count = 0;
  while (!a.empty() && !b.empty()) {
    const std::string_view first = a.substr(0, a.find('.')), other = b.substr(0, b.find('.'));
    if (first != other) break;
    ++count;
    a.remove_prefix(std::min(a.size(), first.size() + 1));
    b.remove_prefix(std::min(b.size(), first.size() + 1));
  }
  return count;
}

struct Closeness {
  std::size_t modules;
  bool same_last_part, same_dimensions;
  auto operator<=>(const Closeness&) const = default;
};

Closeness closeness(const NamedParameter& a, const NamedParameter& b) {
  const auto [a_module, a_last] = split_name(a.name);
  const auto [b_module, b_last] = split_name(b.name);
  return {common_modules(a_module, b_module), a_last == b_last, a.tensor.dim() == b.tensor.dim()};
}

const NamedParameter& closest(const NamedParameters& among, const NamedParameter& to) {
  const auto same = std::ranges::find(among, to.name, &NamedParameter::name);
  if (same != among.end()) return *same;
  return *std::ranges::max_element(among, {}, [&](const NamedParameter& one) { return closeness(one, to); });
}

bool are_same(const NamedParameters& before, const NamedParameters& now) {
  return std::ranges::equal(before, now, [](const NamedParameter& a, const NamedParameter& b) {
    return a.name == b.name && a.tensor.is_same(b.tensor);
  });
}

// Sets the parameters of an optimizer that does not know names.
void set_parameters(Optimizer& optimizer, const std::vector<NamedParameters>& groups) {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<at::Tensor>& parameters = optimizer.param_groups()[g].params();
    const std::unordered_set<ParameterKey> stay = keys_of(groups[g]);
    for (const at::Tensor& parameter : parameters)
      if (!stay.contains(key_of(parameter))) optimizer.state().erase(parameter.unsafeGetTensorImpl());
    parameters.clear();
    for (const auto& [name, tensor] : groups[g]) parameters.push_back(tensor);
  }
}

}  // namespace

void refit(Optimizer& optimizer, const NamedParameters& before, const NamedParameters& now) {
  if (before.empty() || are_same(before, now)) return;
  const std::unordered_set<ParameterKey> were = keys_of(before), are = keys_of(now);
  std::unordered_map<ParameterKey, std::size_t> group_of;
  std::vector<NamedParameters> groups(optimizer.param_groups().size());
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (const at::Tensor& parameter : optimizer.param_groups()[g].params()) {
      group_of.emplace(key_of(parameter), g);
      if (!were.contains(key_of(parameter)) && !are.contains(key_of(parameter))) groups[g].push_back({"", parameter});
    }
  for (const NamedParameter& parameter : now) {
    const ParameterKey key = key_of(parameter.tensor);
    const bool is_new = !group_of.contains(key) && !were.contains(key);
    const auto group = group_of.find(is_new ? key_of(closest(before, parameter).tensor) : key);
    if (group != group_of.end()) groups[group->second].push_back(parameter);
  }
  if (auto* ours = dynamic_cast<NamedOptimizer*>(&optimizer))
    ours->set_parameters(groups);
  else
    set_parameters(optimizer, groups);
}

}  // namespace composer::optim

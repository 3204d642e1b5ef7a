#include "composer/optim/groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include <ATen/core/Tensor.h>

namespace composer::optim::detail {
namespace {

// The bytes from the first to the last element.
struct Extent {
  const char *begin, *end;
  const NamedParameter* parameter;
};

Extent extent_of(const NamedParameter& parameter) {
  const auto* begin = static_cast<const char*>(parameter.tensor.const_data_ptr());
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < parameter.tensor.dim(); ++d)
    last += (parameter.tensor.size(d) - 1) * parameter.tensor.stride(d);
  return {begin, begin + (last + 1) * parameter.tensor.element_size(), &parameter};
}

// The bytes of an extent that elements lie in: views of one tensor may lie between one another, as its columns do.
std::vector<bool> bytes_of(const Extent& extent, const char* from, const char* to) {
  const at::Tensor& tensor = extent.parameter->tensor;
  std::vector<bool> bytes(static_cast<std::size_t>(to - from));
  std::vector<std::int64_t> index(static_cast<std::size_t>(tensor.dim()));
  for (std::int64_t left = tensor.numel(); left > 0; --left) {
    const char* element = extent.begin;
    for (std::size_t d = 0; d < index.size(); ++d)
      element += index[d] * tensor.stride(static_cast<std::int64_t>(d)) * tensor.element_size();
    for (std::int64_t byte = 0; byte < tensor.element_size(); ++byte)
      if (element + byte >= from && element + byte < to) bytes[static_cast<std::size_t>(element + byte - from)] = true;
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < tensor.size(static_cast<std::int64_t>(d))) break;
      index[d] = 0;
    }
  }
  return bytes;
}

bool overlap(const Extent& a, const Extent& b) {
  const char *from = std::max(a.begin, b.begin), *to = std::min(a.end, b.end);
  if (from >= to) return false;
  if (a.parameter->tensor.is_non_overlapping_and_dense() && b.parameter->tensor.is_non_overlapping_and_dense())
    return true;  // both are without gaps
  const std::vector<bool> of_a = bytes_of(a, from, to), of_b = bytes_of(b, from, to);
  for (std::size_t i = 0; i < of_a.size(); ++i)
    if (of_a[i] && of_b[i]) return true;
  return false;
}

void check_memory(const std::string& who, const NamedParameters& parameters) {
  std::vector<Extent> extents;
  for (const NamedParameter& parameter : parameters)
    if (parameter.tensor.numel() > 0) extents.push_back(extent_of(parameter));
  std::ranges::sort(extents, {}, &Extent::begin);
  for (std::size_t i = 0; i < extents.size(); ++i)
    for (std::size_t j = i + 1; j < extents.size() && extents[j].begin < extents[i].end; ++j)
      if (overlap(extents[i], extents[j]))
        throw ConfigError(who, ": the parameters ", extents[i].parameter->name, " and ", extents[j].parameter->name,
                          " share memory, so each step would change them twice; pass only one of them");
}

std::string describe(const ParameterGroup& group, std::size_t index) {
  return group.match.empty() ? join("groups[", index, "]") : join("groups[", index, "] (", group.match, ")");
}

[[noreturn]] void throw_empty(const std::string& who, const std::string& group, bool fitted) {
  throw ConfigError(who, ": ", group,
                    " has no parameters: ", fitted ? "all that match are in earlier groups" : "no parameter matches");
}

bool wants(const ParameterGroup& group, const NamedParameter& parameter) {
  return group.where ? group.where(parameter.name, parameter.tensor) : fits(group.match, parameter.name);
}

}  // namespace

bool fits(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, star_name = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == name[n] && pattern[p] != '*'))) {
      ++p, ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++, star_name = n;
    } else if (star != std::string_view::npos) {  // let the last * take one more
      p = star + 1, n = ++star_name;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

void check_parameters(const std::string& who, const NamedParameters& parameters) {
  if (parameters.empty()) throw ConfigError(who, ": there are no parameters to optimize");
  std::map<std::string_view, int> names;
  for (const auto& [name, tensor] : parameters) {
    if (++names[name] > 1) throw ConfigError(who, ": two parameters are called ", name);
    if (!tensor.defined()) throw ConfigError(who, ": the parameter ", name, " is undefined");
    if (!at::isFloatingType(tensor.scalar_type()))
      throw ConfigError(who, ": the parameter ", name, " must be of a real floating point type, got ", tensor.dtype());
    if (tensor.layout() != at::kStrided)
      throw ConfigError(who, ": the parameter ", name, " must be dense, got ", tensor.layout());
    if (!tensor.is_leaf())
      throw ConfigError(who, ": the parameter ", name, " is not a leaf tensor: it was computed from others");
  }
  check_memory(who, parameters);
}

std::vector<PlannedGroup> plan_groups(const std::string& who, const NamedParameters& parameters,
                                      const std::vector<ParameterGroup>& groups, bool decay_matrices_only) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (groups[i].match.empty() == !groups[i].where)
      throw ConfigError(who, ": groups[", i, "] must have exactly one of match and where");

  std::vector<PlannedGroup> planned(2 * groups.size() + 2);  // for each, and first for the rest: decayed, undecayed
  std::vector<bool> fitted(groups.size());
  for (const NamedParameter& parameter : parameters) {
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (!wants(groups[i], parameter)) continue;
      fitted[i] = true;
      if (!first) first = i;
    }
    const bool undecayed =
        decay_matrices_only && parameter.tensor.dim() < 2 && !(first && groups[*first].weight_decay.has_value());
    PlannedGroup& group = planned[2 * (first ? *first + 1 : 0) + (undecayed ? 1 : 0)];
    group.parameters.push_back(parameter);
    group.asked = first ? &groups[*first] : nullptr;
    group.undecayed = undecayed;
    group.who = first ? join(who, ": ", describe(*group.asked, *first)) : who;
  }
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (planned[2 * i + 2].parameters.empty() && planned[2 * i + 3].parameters.empty())
      throw_empty(who, describe(groups[i], i), fitted[i]);
  std::erase_if(planned, [](const PlannedGroup& group) { return group.parameters.empty(); });
  return planned;
}

void set_fields(const PlannedGroup& group, const std::vector<OptionField>& fields) {
  const auto find = [&](std::string_view name) -> double* {
    for (const OptionField& field : fields)
      if (field.name == name && std::holds_alternative<double*>(field.value)) return std::get<double*>(field.value);
    return nullptr;
  };
  const auto set = [&](const char* name, const std::optional<double>& value) {
    if (!value) return;
    double* field = find(name);
    if (!field) throw ConfigError(group.who, ": sets ", name, ", which this optimizer does not have");
    *field = *value;
  };
  if (group.asked) {
    const ParameterGroup& asked = *group.asked;
    set("lr", asked.lr);
    set("weight_decay", asked.weight_decay);
    set("momentum", asked.momentum);
    set("beta1", asked.beta1);
    set("beta2", asked.beta2);
    set("eps", asked.eps);
  }
  if (group.undecayed) set("weight_decay", 0.0);
}

void check_lr(const std::string& who, double lr) { require(lr >= 0 && std::isfinite(lr), who, "lr must be >= 0", lr); }

void warn_of_decay(const std::string& who, double weight_decay) {
  if (weight_decay >= 1e-3)
    warn(join(who, ": weight_decay is ", weight_decay, ", which is not multiplied by the learning rate here; ",
              "usual values are below 1e-3"));
}

void check_betas(const std::string& who, double beta1, double beta2) {
  require(beta1 >= 0 && beta1 < 1, who, "beta1 must be in [0, 1)", beta1);
  require(beta2 >= 0 && beta2 < 1, who, "beta2 must be in [0, 1)", beta2);
}

void check_not_negative(const std::string& who, const char* option, double value) {
  if (!(value >= 0 && std::isfinite(value))) throw ConfigError(who, ": ", option, " must be >= 0, got ", value);
}

}  // namespace composer::optim::detail

#include "composer/optim/groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include "composer/util/wildcard.h"

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

// Calls visit(address) for each element, until it returns false. Returns whether all were visited.
template <class F>
bool visit_elements(const Extent& extent, const F& visit) {
  const at::Tensor& tensor = extent.parameter->tensor;
  std::vector<std::int64_t> sizes, strides, index;  // of dimensions with more than one element; strides in bytes
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    if (tensor.size(d) > 1 && tensor.stride(d) > 0) {
      sizes.push_back(tensor.size(d));
      strides.push_back(tensor.stride(d) * tensor.element_size());
    }
  index.resize(sizes.size());
  const char* element = extent.begin;
  for (;;) {
    if (!visit(element)) return false;
    std::size_t d = sizes.size();
    for (; d > 0; --d) {
      element += strides[d - 1];
      if (++index[d - 1] < sizes[d - 1]) break;
      element -= sizes[d - 1] * strides[d - 1];
      index[d - 1] = 0;
    }
    if (d == 0) return true;
  }
}

// Marks the bytes of a stretch of memory that belong to elements, in units that divide the position and size of every
// element.
class UsedMemory {
 public:
  explicit UsedMemory(std::span<const Extent> extents) : begin_(extents.front().begin) {
    const char* end = begin_;
    std::size_t unit = 0;
    for (const Extent& extent : extents) {
      end = std::max(end, extent.end);
      unit = std::gcd(unit, std::gcd(size_of(extent), static_cast<std::size_t>(extent.begin - begin_)));
    }
    unit_ = unit;
    units_.resize(static_cast<std::size_t>(end - begin_) / unit_);
  }

  // Marks the elements of a tensor, and returns nullptr. If a unit is marked already, returns the first such unit and
  // marks nothing.
  const char* add(const Extent& extent) {
    const std::size_t units = size_of(extent) / unit_;
    const char* shared = nullptr;
    const auto is_free = [&](const char* element) {
      for (std::size_t i = 0; i < units; ++i)
        if (units_[index_of(element) + i]) shared = element + i * unit_;
      return shared == nullptr;
    };
    if (!visit_elements(extent, is_free)) return shared;
    visit_elements(extent, [&](const char* element) {
      for (std::size_t i = 0; i < units; ++i) units_[index_of(element) + i] = true;
      return true;
    });
    return nullptr;
  }

 private:
  static std::size_t size_of(const Extent& extent) {
    return static_cast<std::size_t>(extent.parameter->tensor.element_size());
  }
  std::size_t index_of(const char* address) const { return static_cast<std::size_t>(address - begin_) / unit_; }

  const char* begin_;
  std::size_t unit_ = 1;
  std::vector<bool> units_;
};

bool has_element_at(const Extent& extent, const char* address) {
  const std::int64_t size = extent.parameter->tensor.element_size();
  return !visit_elements(extent, [&](const char* element) { return address < element || address >= element + size; });
}

// Checks tensors whose extents overlap. Their elements may still be disjoint: the columns of a matrix, for example, lie
// between one another.
void check_elements(const std::string& who, std::span<const Extent> extents) {
  UsedMemory used(extents);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const char* shared = used.add(extents[i]);
    if (!shared) continue;
    const auto first = std::ranges::find_if(extents, [&](const Extent& e) { return has_element_at(e, shared); });
    throw ConfigError(who, ": the parameters ", first->parameter->name, " and ", extents[i].parameter->name,
                      " share memory, so each step would change them twice; pass only one of them");
  }
}

void check_memory(const std::string& who, const NamedParameters& parameters) {
  std::vector<Extent> extents;
  for (const NamedParameter& parameter : parameters)
    if (parameter.tensor.numel() > 0) extents.push_back(extent_of(parameter));
  std::ranges::sort(extents, {}, &Extent::begin);
  for (std::size_t from = 0, to = 0; from < extents.size(); from = to) {
    const char* end = extents[from].end;
    for (to = from + 1; to < extents.size() && extents[to].begin < end; ++to) end = std::max(end, extents[to].end);
    if (to > from + 1) check_elements(who, std::span(extents).subspan(from, to - from));
  }
}

std::string describe(std::string_view list, const ParameterGroup& group, std::size_t index) {
  return group.match.empty() ? join(list, '[', index, ']') : join(list, '[', index, "] (", group.match, ')');
}

[[noreturn]] void throw_empty(const std::string& who, const std::string& group, bool fitted) {
  throw ConfigError(who, ": ", group,
                    " has no parameters: ", fitted ? "all that match are in earlier ones" : "no parameter matches");
}

bool is_member(const ParameterGroup& group, const NamedParameter& parameter) {
  return group.where ? group.where(parameter.name, parameter.tensor) : fits_wildcard(group.match, parameter.name);
}

}  // namespace

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
                                      const std::vector<ParameterGroup>& groups, bool decay_matrices_only,
                                      std::string_view list) {
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (groups[i].match.empty() == !groups[i].where)
      throw ConfigError(who, ": ", list, '[', i, "] must have exactly one of match and where");

  // Two for each group, and first two for the remaining parameters: with decay, without decay.
  std::vector<PlannedGroup> planned(2 * groups.size() + 2);
  std::vector<bool> fitted(groups.size());
  for (const NamedParameter& parameter : parameters) {
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (!is_member(groups[i], parameter)) continue;
      fitted[i] = true;
      if (!first) first = i;
    }
    const bool undecayed =
        decay_matrices_only && parameter.tensor.dim() < 2 && !(first && groups[*first].weight_decay.has_value());
    PlannedGroup& group = planned[2 * (first ? *first + 1 : 0) + (undecayed ? 1 : 0)];
    group.parameters.push_back(parameter);
    group.requested = first ? &groups[*first] : nullptr;
    group.undecayed = undecayed;
    group.who = first ? join(who, ": ", describe(list, *group.requested, *first)) : who;
  }
  for (std::size_t i = 0; i < groups.size(); ++i)
    if (planned[2 * i + 2].parameters.empty() && planned[2 * i + 3].parameters.empty())
      throw_empty(who, describe(list, groups[i], i), fitted[i]);
  std::erase_if(planned, [](const PlannedGroup& group) { return group.parameters.empty(); });
  return planned;
}

std::vector<std::pair<const char*, double>> overrides_of(const PlannedGroup& group) {
  std::vector<std::pair<const char*, double>> all;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) all.emplace_back(name, *value);
  };
  if (group.requested) {
    const ParameterGroup& requested = *group.requested;
    add("lr", requested.lr);
    add("weight_decay", requested.weight_decay);
    add("momentum", requested.momentum);
    add("beta1", requested.beta1);
    add("beta2", requested.beta2);
    add("eps", requested.eps);
  }
  if (group.undecayed) add("weight_decay", 0.0);
  return all;
}

void warn_of_decay(const std::string& who, double weight_decay) {
  if (weight_decay >= 1e-3)
    warn(join(who, ": weight_decay is ", weight_decay, ", which is not multiplied by the learning rate here; ",
              "usual values are below 1e-3"));
}

}  // namespace composer::optim::detail

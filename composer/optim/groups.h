// Assigns parameters to groups of options. Internal.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

template <class Options>
StateDict GroupOptions<Options>::described() const {
  return composer::describe(values, described_by());
}

namespace detail {

struct BuiltGroup {
  NamedParameters parameters;
  std::unique_ptr<torch::optim::OptimizerOptions> options;
};

// Throws ConfigError unless all are distinct floating-point leaf tensors that share no memory.
void check_parameters(const std::string& who, const NamedParameters& parameters);

struct PlannedGroup {
  NamedParameters parameters;
  const ParameterGroup* requested = nullptr;  // null: the group of parameters that no requested group matches
  bool undecayed = false;                     // no weight decay, because of decay_matrices_only
  std::string who;                            // for errors
};
// Parameters that no group matches come first. Throws ConfigError, which calls the groups by the name of their list.
std::vector<PlannedGroup> plan_groups(const std::string& who, const NamedParameters& parameters,
                                      const std::vector<ParameterGroup>& groups, bool decay_matrices_only,
                                      std::string_view list = "groups");

// The options that the group overrides, by name.
std::vector<std::pair<const char*, double>> overrides_of(const PlannedGroup& group);

template <class Options>
using Described = std::vector<Option<Options>> (*)();

// A check of several options together; throws ConfigError.
template <class Options>
using Rule = void (*)(const std::string& who, const Options& options);

template <class Options>
void check_options(const std::string& who, const Options& options, Described<Options> described, Rule<Options> rule) {
  check(options, described(), who + ": ", "");
  if (rule) rule(who, options);
}

// Describes the options of an optimizer: its own, and those that every optimizer has.
template <class O, class... T>
std::vector<Option<O>> with_groups(Field<O, T>... own) {
  constexpr const char* kOfAll = "is not of a group";
  return all_options(std::move(own)..., part("groups", &O::groups, "groups"),
                     option("decay_matrices_only", &O::decay_matrices_only).unlogged(kOfAll),
                     option("step_in_backward", &O::step_in_backward).unlogged(kOfAll));
}

template <class Options>
std::vector<BuiltGroup> build_groups(const std::string& who, const NamedParameters& parameters, const Options& options,
                                     Described<Options> described, Rule<Options> rule = nullptr) {
  check_options(who, options, described, rule);
  check_parameters(who, parameters);
  const auto list = described();
  std::vector<BuiltGroup> built;
  for (PlannedGroup& group : plan_groups(who, parameters, options.groups, options.decay_matrices_only)) {
    Options own = options;
    own.groups.clear();
    for (const auto& [name, value] : overrides_of(group)) {
      const auto found = std::ranges::find(list, name, &Option<Options>::name);
      if (found == list.end()) throw ConfigError(group.who, ": sets ", name, ", which this optimizer does not have");
      found->read(own, composer::detail::to_text(value));
    }
    check_options(group.who, own, described, rule);
    built.push_back({std::move(group.parameters), std::make_unique<GroupOptions<Options>>(std::move(own), described)});
  }
  return built;
}

template <class Options>
const GroupOptions<Options>& as(const torch::optim::OptimizerOptions& options) {
  return static_cast<const GroupOptions<Options>&>(options);
}

// The current learning rate as a fraction of the initial one; 1 if the initial one is 0.
template <class Options>
double share_of_initial_lr(const GroupOptions<Options>& group) {
  return group.initial_lr == 0 ? 1 : group.values.lr / group.initial_lr;
}

// A factory of this type of optimizer. Checks immediately everything that does not depend on parameters.
template <class T, class Options>
AnyOptimizer make_later(const std::string& who, Options options, Described<Options> described,
                        Rule<Options> rule = nullptr) {
  check_options(who, options, described, rule);
  return AnyOptimizer::Factory([options = std::move(options)](const NamedParameters& parameters) {
    return std::make_shared<T>(parameters, options);
  });
}

// Warns about values meant for other optimizers: decoupled decay is not multiplied by the learning rate, so these are
// 1000 times too large.
void warn_of_decay(const std::string& who, double weight_decay);

}  // namespace detail
}  // namespace composer::optim

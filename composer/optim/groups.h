// Assigns parameters to groups of options. Internal.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim::detail {

struct BuiltGroup {
  NamedParameters parameters;
  std::unique_ptr<torch::optim::OptimizerOptions> options;
};

// Throws ConfigError unless all are distinct floating-point leaf tensors that share no memory.
void check_parameters(const std::string& who, const NamedParameters& parameters);

struct PlannedGroup {
  NamedParameters parameters;
  const ParameterGroup* asked = nullptr;  // null: parameters that no group matches
  bool undecayed = false;                 // no weight decay, because of decay_matrices_only
  std::string who;                        // for errors
};
// Parameters that no group matches come first. Throws ConfigError.
std::vector<PlannedGroup> plan_groups(const std::string& who, const NamedParameters& parameters,
                                      const std::vector<ParameterGroup>& groups, bool decay_matrices_only);

// Throws ConfigError if the group sets an option that is not among the fields.
void set_fields(const PlannedGroup& group, const std::vector<OptionField>& fields);

// `check` throws ConfigError for invalid options.
template <class Options>
std::vector<BuiltGroup> build_groups(const std::string& who, const NamedParameters& parameters, const Options& options,
                                     void (*check)(const std::string& who, const Options& options)) {
  check(who, options);
  check_parameters(who, parameters);
  std::vector<BuiltGroup> built;
  for (PlannedGroup& group : plan_groups(who, parameters, options.groups, options.decay_matrices_only)) {
    Options own = options;
    own.groups.clear();
    set_fields(group, fields_of(own));
    check(group.who, own);
    built.push_back({std::move(group.parameters), std::make_unique<GroupOptions<Options>>(std::move(own))});
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

// A factory of this type of optimizer. Checks immediately what can be checked without parameters.
template <class T, class Options>
AnyOptimizer make_later(const std::string& who, Options options, void (*check)(const std::string&, const Options&)) {
  check(who, options);
  return AnyOptimizer::Factory([options = std::move(options)](const NamedParameters& parameters) {
    return std::make_shared<T>(parameters, options);
  });
}

// Decoupled decay is not multiplied by the learning rate, so values for other optimizers are 1000 times too large.
void warn_of_decay(const std::string& who, double weight_decay);

// For check functions: "adamw: beta1 must be in [0, 1), got 2".
inline void require(bool holds, const std::string& who, const char* rule, double value) {
  if (!holds) throw ConfigError(who, ": ", rule, ", got ", value);
}
void check_lr(const std::string& who, double lr);
void check_betas(const std::string& who, double beta1, double beta2);
void check_not_negative(const std::string& who, const char* option, double value);

}  // namespace composer::optim::detail

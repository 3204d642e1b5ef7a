#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/export.h"
#include "composer/optim/parameter_group.h"
#include "composer/optim/skippable_step.h"

namespace composer {
template <class Options>
struct Option;
class StateDict;
}  // namespace composer

namespace composer::optim {

namespace detail {
class BackwardSteps;
struct Batch;
struct Scratch;
struct Slice;
struct BuiltGroup;
}  // namespace detail

// The options of a parameter group of any of our optimizers.
struct COMPOSER_EXPORT NamedOptions {
  virtual ~NamedOptions();
  virtual StateDict described() const = 0;  // by name
  double initial_lr = 0;                    // learning rate before any schedule
};

template <class Options>
struct GroupOptions final : torch::optim::OptimizerCloneableOptions<GroupOptions<Options>>, NamedOptions {
  using Described = std::vector<Option<Options>>;
  GroupOptions(Options given, Described (*list)()) : values(std::move(given)), described_by(list) {
    initial_lr = values.lr;
  }
  double get_lr() const override { return values.lr; }
  void set_lr(double lr) override { values.lr = lr; }
  StateDict described() const override;

  Options values;
  Described (*described_by)();
};

// The optimizer state of a parameter; undefined where a tensor does not exist yet.
struct COMPOSER_EXPORT ParameterState : torch::optim::OptimizerCloneableParamState<ParameterState> {
  std::array<at::Tensor, 4> tensors;
  std::span<const char* const> keys;  // PyTorch's names of the tensors; they are the optimizer's
  std::vector<std::int64_t> shape;    // of the parameter when the state was created
  bool first = false;                 // the momentum buffer exists, but has seen no gradient yet
};

struct StateTensor {
  std::string parameter, key;
  at::Tensor tensor;
};

// Whether this process keeps the state of a parameter, where several share the work. Empty: of all.
using OwnsState = std::function<bool(const at::Tensor& parameter)>;

// The base of our optimizers: a torch::optim::Optimizer with named parameters. Updates all small tensors in one
// parallel region and never reads a device's tensor on the host. Parameters without a gradient are skipped. A parameter
// may change its memory layout, dtype or device between steps; its state follows. Every error names the parameter. Use
// from one thread at a time.
class COMPOSER_EXPORT NamedOptimizer : public torch::optim::Optimizer, public SkippableStep {
 public:
  NamedOptimizer(const NamedOptimizer&) = delete;
  NamedOptimizer& operator=(const NamedOptimizer&) = delete;
  ~NamedOptimizer() override;

  at::Tensor step(LossClosure closure = nullptr) override;
  // As step(), but does nothing if the 0-d float tensor is not 0. For parameters on a device, this is decided there.
  // The tensor must be on the CPU or on the device of all parameters.
  void step_unless(const at::Tensor& found_inf) override;

  // If true, each parameter is updated as soon as backward has its gradient, which is then freed; step() only runs its
  // closure. The gradients never exist all at once, so clipping, accumulation over microbatches and gradient scaling
  // are not possible; step_unless() throws.
  bool steps_in_backward() const { return in_backward_ != nullptr; }

  // The state by parameter names and PyTorch's keys, for every parameter that requires gradients, also before its first
  // gradient. The tensors are the optimizer's own. With `owns`: of parameters for which it is true.
  std::vector<StateTensor> state_tensors(const OwnsState& owns = {}) const;
  // Copies the tensors into the state: a resumed run is bit-identical. A parameter of which nothing is given, as of one
  // that was frozen, has no state then. Throws ConfigError, before changing anything, for tensors that are unknown,
  // duplicate or of another shape, or missing beside others of their parameter. With `owns`: those of other parameters
  // are not loaded.
  void load_state_tensors(const std::vector<StateTensor>& tensors, const OwnsState& owns = {});
  // The parameters of all groups, in their order.
  NamedParameters named_parameters() const;
  // The optimizer by whose rule a group is updated: this one, or a part of optim::combined().
  const NamedOptimizer& rule(std::size_t group) const { return group < rules_.size() ? *rules_[group] : *this; }

  // The state of one parameter under one of PyTorch's keys: the optimizer's own tensor. Undefined if it does not exist,
  // which includes the time before the first step.
  at::Tensor state_tensor(const at::Tensor& parameter, std::string_view key) const;

  // Replaces parameter `before` by `now`, with empty state. Throws ConfigError if `before` is not in a group.
  void replace_parameter(const at::Tensor& before, at::Tensor now);
  // Drops a parameter and its state. Throws ConfigError if it is not in a group.
  void remove_parameter(const at::Tensor& parameter);
  // Puts these parameters, one list for each group, into the place of those that there are. Those that were there
  // before keep their state and, if none is given, their name.
  void set_parameters(const std::vector<NamedParameters>& groups);

  // The groups and their options as text.
  std::string table() const;

  // Both throw: a file in this format would not contain names.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  using Options = torch::optim::OptimizerOptions;

  NamedOptimizer(std::string who, std::vector<const char*> state_keys, std::vector<detail::BuiltGroup> groups,
                 bool step_in_backward);
  // Takes the groups of these optimizers, and updates each by the rule of the one that it is from. They are of no other
  // use afterwards. All or none of them step in backward.
  NamedOptimizer(std::string who, const std::vector<std::shared_ptr<NamedOptimizer>>& parts);

  // Creates the missing tensors of a parameter's state.
  virtual void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const = 0;
  // Whether describe() supports these options; must not change anything.
  virtual bool elementwise(const Options& options) const;
  // Counts the step and fills in how to update a dense float or double parameter on the CPU; p, g, n are already set.
  virtual void describe(detail::Slice& slice, ParameterState& state, const Options& options);
  // Updates parameters of one device and dtype. Obeys batch.found_inf, which is set only if obeys_found_inf().
  virtual void update(detail::Batch& batch, const Options& options) = 0;
  virtual bool obeys_found_inf(const detail::Batch& batch, const Options& options) const;
  // Whether update_sparse() supports these options.
  virtual bool takes_sparse(const Options& options) const;
  virtual void update_sparse(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
                             const Options& options);

 private:
  void begin_watching();
  void end_watching();
  NamedOptimizer& mutable_rule(std::size_t group) { return group < rules_.size() ? *rules_[group] : *this; }
  std::string name_of(std::size_t group, std::size_t index) const;
  ParameterState empty_state(const at::Tensor& parameter) const;
  ParameterState& state_of(std::size_t group, const at::Tensor& parameter);
  void check_gradient(std::size_t group, std::size_t index) const;
  void check_device(const at::Tensor& found_inf) const;
  void collect(std::size_t group, std::size_t index, bool skip);
  void update_batches(std::size_t group, const at::Tensor& found_inf);
  void update_all(const at::Tensor& found_inf);
  void update_one(std::size_t group, std::size_t index);

  std::string who_;
  std::vector<const char*> state_keys_;
  std::vector<std::vector<std::string>> names_;         // of the parameters of each group
  std::vector<std::shared_ptr<NamedOptimizer>> rules_;  // by which each group is updated; empty: by that of this one
  std::unique_ptr<detail::BackwardSteps> in_backward_;  // with step_in_backward
  std::unique_ptr<detail::Scratch> scratch_;
};

}  // namespace composer::optim

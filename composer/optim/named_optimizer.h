#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/export.h"
#include "composer/optim/skippable_step.h"
#include "composer/optim/parameter_group.h"

namespace composer::optim {

namespace detail {
struct Slice;
struct BuiltGroup;
}  // namespace detail

struct OptionField {
  const char* name;
  std::variant<double*, bool*> value;
};

// The options of a parameter group of one of our optimizers, whatever its type.
struct COMPOSER_EXPORT NamedOptions {
  virtual ~NamedOptions();
  virtual std::vector<OptionField> fields() = 0;
  double initial_lr = 0;  // before any schedule
};

template <class Options>
struct GroupOptions final : torch::optim::OptimizerCloneableOptions<GroupOptions<Options>>, NamedOptions {
  explicit GroupOptions(Options given) : values(std::move(given)) { initial_lr = values.lr; }
  double get_lr() const override { return values.lr; }
  void set_lr(double lr) override { values.lr = lr; }
  std::vector<OptionField> fields() override { return fields_of(values); }

  Options values;
};

// What an optimizer remembers of a parameter, in the order of its state keys; undefined where there is nothing.
struct COMPOSER_EXPORT ParameterState : torch::optim::OptimizerCloneableParamState<ParameterState> {
  std::array<at::Tensor, 4> tensors;
  bool fresh = true;  // has seen no gradient
};

struct StateTensor {
  std::string parameter, key;
  at::Tensor tensor;
};

// The base of our optimizers: a torch::optim::Optimizer that knows its parameters by name and updates all that lie on
// the CPU in one parallel region. It never reads a device's tensor on the host. Parameters without a gradient are
// skipped; a parameter may change its memory layout or device between steps, its state follows. All errors name the
// parameter. One thread at a time.
class COMPOSER_EXPORT NamedOptimizer : public torch::optim::Optimizer, public SkippableStep {
 public:
  NamedOptimizer(const NamedOptimizer&) = delete;
  NamedOptimizer& operator=(const NamedOptimizer&) = delete;
  ~NamedOptimizer() override;

  at::Tensor step(LossClosure closure = nullptr) override;
  void step_unless(const at::Tensor& found_inf) override;

  // Each parameter is updated as soon as backward has its gradient, which is freed at once; step() only runs its
  // closure. Nobody ever sees all gradients, so this excludes clipping, accumulation over microbatches and gradient
  // scaling: step_unless() throws ConfigError.
  bool steps_in_backward() const { return in_backward_; }

  // The state by the names of parameters and PyTorch's keys. A parameter that has seen no gradient has none. The
  // tensors are the optimizer's own.
  std::vector<StateTensor> state_tensors() const;
  // Copies them in: the run goes on to the bit. A parameter of which nothing is given starts anew. Throws ConfigError,
  // before it changes anything, for what is unknown, incomplete, there twice or of another shape.
  void load_state_tensors(const std::vector<StateTensor>& tensors);

  // Puts `now` in the place of `before`, without state. Throws ConfigError if `before` is not there.
  void replace_parameter(const at::Tensor& before, at::Tensor now);

  // The groups and their options, for people.
  std::string table() const;

  // Not available, and said so: these would write a file without names.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 protected:
  using Options = torch::optim::OptimizerOptions;

  NamedOptimizer(std::string who, std::vector<const char*> state_keys, std::vector<detail::BuiltGroup> groups,
                 bool step_in_backward);

  // Makes the state of a parameter that sees its first gradient.
  virtual void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const = 0;
  // Counts the step and says how to update a dense float or double parameter on the CPU, by update and state; false: by
  // update() below.
  virtual bool describe(detail::Slice& slice, ParameterState& state, const Options& options);
  // Counts the step and updates by tensor operations, on any device and of any type.
  virtual void update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
                      const Options& options) = 0;

 private:
  struct Entry;
  struct Hook;
  struct Scratch;

  Entry& entry(std::size_t group, std::size_t index);
  at::Tensor fitted_gradient(const at::Tensor& parameter, const std::string& name) const;
  void fit_state(const at::Tensor& parameter, ParameterState& state) const;
  void collect(std::size_t group, std::size_t index, const at::Tensor& found_inf);
  void update_by_operations(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
                            const Options& options, const at::Tensor& found_inf);
  void update_all(const at::Tensor& found_inf);
  void update_one(std::size_t group, std::size_t index);
  void hook(std::size_t group, std::size_t index);

  std::string who_;
  std::vector<const char*> state_keys_;
  std::vector<std::vector<Entry>> entries_;  // of the parameters of each group
  bool in_backward_;
  std::mutex mutex_;  // backward may run hooks in several threads
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace composer::optim

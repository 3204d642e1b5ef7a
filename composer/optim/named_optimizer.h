#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include "composer/core/export.h"
#include "composer/optim/parameter_group.h"
#include "composer/optim/skippable_step.h"

namespace composer::optim {

namespace detail {
struct Batch;
struct Scratch;
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

// What an optimizer remembers of a parameter, in the order of state_keys(); undefined where there is nothing.
struct COMPOSER_EXPORT ParameterState : torch::optim::OptimizerCloneableParamState<ParameterState> {
  std::array<at::Tensor, 4> tensors;
  std::vector<std::int64_t> shape;  // of the parameter that it was made for
  bool first = false;               // there is a momentum buffer that has seen no gradient
};

struct StateTensor {
  std::string parameter, key;
  at::Tensor tensor;
};

// The base of our optimizers: a torch::optim::Optimizer that knows its parameters by name, updates all small tensors in
// one parallel region and never reads a device's tensor on the host. Parameters without a gradient are skipped; a
// parameter may change its memory layout or device between steps, its state follows. All errors name the parameter.
// One thread at a time.
class COMPOSER_EXPORT NamedOptimizer : public torch::optim::Optimizer, public SkippableStep {
 public:
  NamedOptimizer(const NamedOptimizer&) = delete;
  NamedOptimizer& operator=(const NamedOptimizer&) = delete;
  ~NamedOptimizer() override;

  at::Tensor step(LossClosure closure = nullptr) override;
  // As step(), but does nothing if the 0-d float tensor is not 0. What is on a device is decided there; the tensor must
  // be on the CPU or on the device of all parameters.
  void step_unless(const at::Tensor& found_inf) override;

  // Each parameter is updated as soon as backward has its gradient, which is freed at once; step() only runs its
  // closure. Nobody ever sees all gradients, so this excludes clipping, accumulation over microbatches and gradient
  // scaling; step_unless() throws.
  bool steps_in_backward() const { return in_backward_; }

  // The state by the names of parameters and PyTorch's keys; of every parameter that wants gradients, also before its
  // first. The tensors are the optimizer's own.
  std::vector<StateTensor> state_tensors() const;
  // Copies them in: the run goes on to the bit. Throws ConfigError, before it changes anything, for what is missing,
  // unknown, there twice or of another shape.
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

  // Makes what is missing of a parameter's state.
  virtual void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const = 0;
  // Whether describe() knows how; must not change anything.
  virtual bool elementwise(const Options& options) const;
  // Counts the step and says how to update a dense float or double parameter on the CPU; p, g, n are set.
  virtual void describe(detail::Slice& slice, ParameterState& state, const Options& options);
  // Updates parameters of one device and dtype. Obeys batch.found_inf, which is given only if obeys_found_inf().
  virtual void update(detail::Batch& batch, const Options& options) = 0;
  virtual bool obeys_found_inf(const detail::Batch& batch, const Options& options) const;
  // Whether update_sparse() knows how.
  virtual bool takes_sparse(const Options& options) const;
  virtual void update_sparse(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
                             const Options& options);

 private:
  struct Hook;

  std::string name_of(std::size_t group, std::size_t index) const;
  ParameterState& state_of(const at::Tensor& parameter, const Options& options);
  void check_gradient(std::size_t group, std::size_t index) const;
  void fit_state(const at::Tensor& parameter, ParameterState& state) const;
  void check_device(const at::Tensor& found_inf) const;
  void collect(std::size_t group, std::size_t index, bool skip);
  void update_batches(const Options& options, const at::Tensor& found_inf);
  void update_all(const at::Tensor& found_inf);
  void complete(std::size_t group, std::size_t index);
  void update_one(std::size_t group, std::size_t index);
  void begin_in_backward();
  void finish_in_backward();
  void hook(std::size_t group, std::size_t index);
  void unhook(const at::Tensor& parameter) const;

  std::string who_;
  std::vector<const char*> state_keys_;
  std::vector<std::vector<std::string>> names_;  // of the parameters of each group
  // Of a parameter, with step_in_backward. Its gradient is complete once for each backward that reaches it:
  // checkpoint() runs backwards of its own.
  struct Completions {
    int seen = 0;      // in this step
    int expected = 0;  // in a step; 0: not known yet
    bool updated = false;
  };
  bool in_backward_;
  bool sees_checkpoints_ = false;                      // in this step
  std::vector<std::vector<Completions>> completions_;  // of the parameters of each group
  std::shared_ptr<NamedOptimizer*> self_;              // for hooks: null once the optimizer has gone
  std::mutex mutex_;                                   // backward may run hooks in several threads
  std::unique_ptr<detail::Scratch> scratch_;
};

}  // namespace composer::optim

#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

// Fields that all three have: lr >= 0; 0 <= beta < 1; eps, weight_decay >= 0; amsgrad (arXiv:1904.09237). The others as
// in SgdOptions.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient (L2)
  bool amsgrad = false;
  bool decay_matrices_only = false;
  std::vector<ParameterGroup> groups = {};
  bool step_in_backward = false;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // times the learning rate, taken off the weights
  bool amsgrad = false;
  bool decay_matrices_only = false;
  std::vector<ParameterGroup> groups = {};
  bool step_in_backward = false;
};

struct DecoupledAdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 1e-5;  // times lr / initial lr, taken off the weights: as Composer's
  bool amsgrad = false;
  bool decay_matrices_only = false;
  std::vector<ParameterGroup> groups = {};
  bool step_in_backward = false;
};

// arXiv:1412.6980.
class COMPOSER_EXPORT Adam : public NamedOptimizer {
 public:
  Adam(const NamedParameters& parameters, const AdamOptions& options);

 protected:
  enum class Decay : std::uint8_t { L2, BY_LR, BY_SCHEDULE };
  Adam(const char* who, const NamedParameters& parameters, const AdamOptions& options, Decay decay);
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(at::Tensor& parameter, const at::Tensor& gradient, ParameterState& state,
              const Options& options) override;

 private:
  double keep(const Options& options) const;
  Decay decay_;
};

// arXiv:1711.05101, as PyTorch's.
class COMPOSER_EXPORT AdamW final : public Adam {
 public:
  AdamW(const NamedParameters& parameters, const AdamWOptions& options);
};

// Weight decay that does not depend on the learning rate, but follows its schedule. As Composer's.
class COMPOSER_EXPORT DecoupledAdamW final : public Adam {
 public:
  DecoupledAdamW(const NamedParameters& parameters, const DecoupledAdamWOptions& options);
};

COMPOSER_EXPORT AnyOptimizer adam(AdamOptions options = {});
COMPOSER_EXPORT AnyOptimizer adamw(AdamWOptions options = {});
COMPOSER_EXPORT AnyOptimizer decoupled_adamw(DecoupledAdamWOptions options = {});

COMPOSER_EXPORT std::vector<OptionField> fields_of(AdamOptions& options);

}  // namespace composer::optim

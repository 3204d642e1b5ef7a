#pragma once
#include <vector>

#include "composer/core/export.h"
#include "composer/optim/any_optimizer.h"
#include "composer/optim/named_optimizer.h"

namespace composer::optim {

namespace detail {
struct AdamHyper;
struct AdamCorrections {  // for the last step count, which most parameters share
  double step = 0, beta1 = 0, beta2 = 0, first = 1, root_of_second = 1;
};
}  // namespace detail

struct AdamOptions {                        // arXiv:1412.6980
  double lr = 1e-3;                         // learning rate, >= 0
  double beta1 = 0.9;                       // in [0, 1); decay of the mean of gradients
  double beta2 = 0.999;                     // in [0, 1); decay of the mean of their squares
  double eps = 1e-8;                        // >= 0; added to the denominator
  double weight_decay = 0;                  // >= 0; added to the gradient (L2)
  bool amsgrad = false;                     // divide by the largest mean of squares so far
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer adam(AdamOptions options = {});  // does not match? AdamOptions{...} tells why

struct AdamWOptions {
  double lr = 1e-3;                         // learning rate, >= 0
  double beta1 = 0.9;                       // in [0, 1); decay of the mean of gradients
  double beta2 = 0.999;                     // in [0, 1); decay of the mean of their squares
  double eps = 1e-8;                        // >= 0; added to the denominator
  double weight_decay = 1e-2;               // >= 0; multiplied by the learning rate
  bool amsgrad = false;                     // divide by the largest mean of squares so far
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer adamw(AdamWOptions options = {});  // does not match? AdamWOptions{...} tells why

// Like AdamW, but the decay does not depend on the initial learning rate: p *= 1 - lr / initial lr * weight_decay. This
// form and its defaults are Composer's.
struct DecoupledAdamWOptions {
  double lr = 1e-3;                         // learning rate, >= 0
  double beta1 = 0.9;                       // in [0, 1); decay of the mean of gradients
  double beta2 = 0.95;                      // in [0, 1); decay of the mean of their squares
  double eps = 1e-8;                        // >= 0; added to the denominator
  double weight_decay = 1e-5;               // >= 0; multiplied by lr / initial lr
  bool amsgrad = false;                     // divide by the largest mean of squares so far
  std::vector<ParameterGroup> groups = {};  // options for some parameters
  bool decay_matrices_only = false;         // no decay of tensors of fewer than 2 dimensions, unless a group sets it
  bool step_in_backward = false;            // update each parameter during backward
};
COMPOSER_EXPORT AnyOptimizer
decoupled_adamw(DecoupledAdamWOptions options = {});  // does not match? DecoupledAdamWOptions{...} tells why

// The common base of Adam, AdamW and DecoupledAdamW. State: step (0-d float), exp_avg, exp_avg_sq and, with amsgrad,
// max_exp_avg_sq.
class COMPOSER_EXPORT AdamOptimizer : public NamedOptimizer {
 protected:
  using NamedOptimizer::NamedOptimizer;
  virtual detail::AdamHyper hyper(const Options& options) const = 0;

 private:
  void prepare(const at::Tensor& parameter, ParameterState& state, const Options& options) const override;
  bool elementwise(const Options& options) const override;
  void describe(detail::Slice& slice, ParameterState& state, const Options& options) override;
  void update(detail::Batch& batch, const Options& options) override;
  bool obeys_found_inf(const detail::Batch& batch, const Options& options) const override;

  detail::AdamCorrections corrections_;
};

class COMPOSER_EXPORT Adam final : public AdamOptimizer {
 public:
  Adam(const NamedParameters& parameters, const AdamOptions& options);

 private:
  detail::AdamHyper hyper(const Options& options) const override;
};

class COMPOSER_EXPORT AdamW final : public AdamOptimizer {
 public:
  AdamW(const NamedParameters& parameters, const AdamWOptions& options);

 private:
  detail::AdamHyper hyper(const Options& options) const override;
};

class COMPOSER_EXPORT DecoupledAdamW final : public AdamOptimizer {
 public:
  DecoupledAdamW(const NamedParameters& parameters, const DecoupledAdamWOptions& options);

 private:
  detail::AdamHyper hyper(const Options& options) const override;
};

}  // namespace composer::optim

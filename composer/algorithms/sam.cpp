#include "composer/algorithms/sam.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/empty_like.h>
#include <torch/optim/optimizer.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/optim/parameter_group.h"
#include "composer/util/joint_norm.h"

namespace composer::algorithms {
namespace {

// Computes in float32 at least: epsilon would be 0 in float16.
at::Tensor norm_of(const std::vector<at::Tensor>& gradients) {
  const auto is_double = [](const at::Tensor& one) { return one.scalar_type() == at::kDouble; };
  const at::ScalarType type = std::ranges::any_of(gradients, is_double) ? at::kDouble : at::kFloat;
  return joint_norm(gradients, type);
}

[[noreturn]] void throw_sparse(const std::string& name) {
  throw ConfigError("SAM: cannot use the sparse gradient of ", name,
                    ". Make it dense, e.g. an embedding's by sparse(false)");
}

bool is_sparse(const at::Tensor& gradient) { return gradient.defined() && gradient.layout() != at::kStrided; }

void check_dense(const std::vector<at::Tensor>& parameters, const Model& model) {
  if (std::ranges::none_of(parameters, [](const at::Tensor& parameter) { return is_sparse(parameter.grad()); })) return;
  for (const auto& [name, parameter] : optim::parameters_of(as_module(model)))
    if (is_sparse(parameter.grad())) throw_sparse(name);
}

std::vector<Option<SAMOptions>> sam_options() {
  using O = SAMOptions;
  return all_options(option("rho", &O::rho).at_least(0).finite(), option("epsilon", &O::epsilon).above(0).finite(),
                     option("interval", &O::interval).at_least(1));
}

}  // namespace

SharpStep::SharpStep(const std::vector<at::Tensor>& parameters, double rho, double epsilon) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (is_sparse(gradient)) throw_sparse(join("a parameter ", parameter.sizes()));
    moved_.push_back(parameter);
    gradients.push_back(gradient);
    before_.push_back(at::empty_like(parameter));
  }
  if (moved_.empty()) return;
  at::_foreach_copy_(before_, moved_);
  at::_foreach_mul_(gradients, norm_of(gradients).add_(epsilon).reciprocal_().mul_(rho));
  // If the norm is infinite, as after an overflow of scaled losses, the weights do not move; otherwise the second pass
  // would put NaN into running statistics.
  for (at::Tensor& gradient : gradients) gradient.nan_to_num_(0, 0, 0);
  at::_foreach_add_(moved_, gradients);
  // The next pass starts without gradients.
  for (const at::Tensor& parameter : moved_) parameter.mutable_grad().reset();
}

SharpStep::~SharpStep() {
  const at::NoGradGuard no_grad;
  if (!moved_.empty()) at::_foreach_copy_(moved_, before_);
}

SAM::SAM(SAMOptions options) : options_(checked("SAM", options, sam_options())) {}

void SAM::make_gradients(State& state, const Pass& pass) {
  if ((state.timestamp.batch + 1) % options_.interval != 0) return pass(/*counts=*/true);
  pass(/*counts=*/false);
  std::vector<at::Tensor> parameters;
  for (const auto& group : state.optimizer->param_groups())
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  check_dense(parameters, *state.model);
  const SharpStep step(parameters, options_.rho, options_.epsilon);
  pass(/*counts=*/true);
}

StateDict SAM::local_hparams() const { return describe(options_, sam_options()); }

namespace entries {

Entry<Algorithms> sam() { return entry<SAM>("sam", "Seeks flat minima by a second pass", sam_options()); }

}  // namespace entries
}  // namespace composer::algorithms

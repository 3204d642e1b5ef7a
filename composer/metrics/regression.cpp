#include "composer/metrics/regression.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

constexpr double kLeastDivisor = 1.17e-06;  // as in torchmetrics

at::Tensor errors(const RegressionOptions& options, const Outputs& outputs, const Batch& batch) {
  const at::Tensor& output = pick(outputs, options.output);
  const at::Tensor& target = batch.at(options.target);
  if (output.sizes() != target.sizes())  // broadcasting [N] against [N, 1] would give a wrong value
    throw DataError(options.name, ": outputs and targets must have one shape, got ", output.sizes(), " and ",
                    target.sizes());
  return at_least_float(output) - at_least_float(target);
}

}  // namespace

MeanSquaredError::MeanSquaredError(RegressionOptions options)
    : options_(named("MeanSquaredError", std::move(options))) {}
MeanSquaredError::~MeanSquaredError() = default;

void MeanSquaredError::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor error = errors(options_, outputs, batch);
  over_.add(error.square().sum(at::kDouble));
  under_.add(error.numel(), error.device());
}

MeanAbsoluteError::MeanAbsoluteError(RegressionOptions options)
    : options_(named("MeanAbsoluteError", std::move(options))) {}
MeanAbsoluteError::~MeanAbsoluteError() = default;

void MeanAbsoluteError::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor error = errors(options_, outputs, batch);
  over_.add(error.abs().sum(at::kDouble));
  under_.add(error.numel(), error.device());
}

RootMeanSquaredError::RootMeanSquaredError(RegressionOptions options)
    : options_(named("RootMeanSquaredError", std::move(options))) {}
RootMeanSquaredError::~RootMeanSquaredError() = default;

void RootMeanSquaredError::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor error = errors(options_, outputs, batch);
  over_.add(error.square().sum(at::kDouble));
  under_.add(error.numel(), error.device());
}

MeanAbsolutePercentageError::MeanAbsolutePercentageError(RegressionOptions options)
    : options_(named("MeanAbsolutePercentageError", std::move(options))) {}
MeanAbsolutePercentageError::~MeanAbsolutePercentageError() = default;

void MeanAbsolutePercentageError::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor error = errors(options_, outputs, batch);
  const at::Tensor size = at_least_float(batch.at(options_.target)).abs().clamp_min(kLeastDivisor);
  over_.add((error.abs() / size).sum(at::kDouble));
  under_.add(error.numel(), error.device());
}

SymmetricMeanAbsolutePercentageError::SymmetricMeanAbsolutePercentageError(RegressionOptions options)
    : options_(named("SymmetricMeanAbsolutePercentageError", std::move(options))) {}
SymmetricMeanAbsolutePercentageError::~SymmetricMeanAbsolutePercentageError() = default;

void SymmetricMeanAbsolutePercentageError::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor error = errors(options_, outputs, batch);
  const at::Tensor size =
      at_least_float(pick(outputs, options_.output)).abs() + at_least_float(batch.at(options_.target)).abs();
  over_.add((error.abs() * 2 / size.clamp_min(kLeastDivisor)).sum(at::kDouble));
  under_.add(error.numel(), error.device());
}

StateDict RootMeanSquaredError::local_hparams() const { return describe(options_, with_names<RegressionOptions>()); }
StateDict MeanAbsolutePercentageError::local_hparams() const {
  return describe(options_, with_names<RegressionOptions>());
}
StateDict SymmetricMeanAbsolutePercentageError::local_hparams() const {
  return describe(options_, with_names<RegressionOptions>());
}
StateDict MeanSquaredError::local_hparams() const { return describe(options_, with_names<RegressionOptions>()); }
StateDict MeanAbsoluteError::local_hparams() const { return describe(options_, with_names<RegressionOptions>()); }

namespace entries {

Entry<Metrics> mean_absolute_error() {
  return entry<MeanAbsoluteError, RegressionOptions>("mean_absolute_error", "Mean absolute error",
                                                     with_names<RegressionOptions>());
}

Entry<Metrics> mean_squared_error() {
  return entry<MeanSquaredError, RegressionOptions>("mean_squared_error", "Mean squared error",
                                                    with_names<RegressionOptions>());
}

Entry<Metrics> root_mean_squared_error() {
  return entry<RootMeanSquaredError, RegressionOptions>("root_mean_squared_error", "Root of the mean squared error",
                                                        with_names<RegressionOptions>());
}

Entry<Metrics> mean_absolute_percentage_error() {
  return entry<MeanAbsolutePercentageError, RegressionOptions>(
      "mean_absolute_percentage_error", "Mean error relative to the target", with_names<RegressionOptions>());
}

Entry<Metrics> symmetric_mean_absolute_percentage_error() {
  return entry<SymmetricMeanAbsolutePercentageError, RegressionOptions>(
      "symmetric_mean_absolute_percentage_error", "Mean error relative to the mean of output and target",
      with_names<RegressionOptions>());
}

}  // namespace entries
}  // namespace composer::metrics

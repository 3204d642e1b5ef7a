#include "composer/algorithms/gradient_clipping.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include "composer/algorithms/clip_kernels.h"
#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"
#include "composer/util/joint_norm.h"
#include "composer/util/parallel.h"

namespace composer::algorithms {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements that are worth using another thread

bool is_readable(const at::Tensor& gradient) {
  return gradient.is_cpu() && gradient.is_non_overlapping_and_dense() &&
         (gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kDouble);
}

template <class T>
double sum_of_squares(const T* values, std::int64_t n) {
  if (n <= kGrain) return detail::sum_of_squares(values, n);
  // The sum is computed in pieces of fixed length, so it does not depend on the number of threads.
  const std::int64_t pieces = (n + kGrain - 1) / kGrain;
  std::vector<double> sums(static_cast<std::size_t>(pieces));
  parallel_for(0, pieces, 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i)
      sums[static_cast<std::size_t>(i)] = detail::sum_of_squares(values + i * kGrain, std::min(kGrain, n - i * kGrain));
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

template <class T>
void multiply(T* values, std::int64_t n, T factor) {
  parallel_for(0, n, kGrain,
               [&](std::int64_t from, std::int64_t to) { detail::multiply(values + from, to - from, factor); });
}

double sum_of_squares(const at::Tensor& gradient) {
  if (gradient.scalar_type() == at::kFloat) return sum_of_squares(gradient.const_data_ptr<float>(), gradient.numel());
  return sum_of_squares(gradient.const_data_ptr<double>(), gradient.numel());
}

void multiply(const at::Tensor& gradient, double factor) {
  if (gradient.scalar_type() == at::kFloat)
    multiply(gradient.mutable_data_ptr<float>(), gradient.numel(), static_cast<float>(factor));
  else
    multiply(gradient.mutable_data_ptr<double>(), gradient.numel(), factor);
  gradient.unsafeGetTensorImpl()->bump_version();  // tells autograd of the change
}

void clip_norm_on_host(const std::vector<at::Tensor>& gradients, double threshold) {
  double sum = 0;
  for (const at::Tensor& gradient : gradients) sum += sum_of_squares(gradient);
  const double coefficient = threshold / (std::sqrt(sum) + 1e-6);
  if (coefficient >= 1) return;  // false for NaN, which then spreads to all gradients
  for (const at::Tensor& gradient : gradients) multiply(gradient, coefficient);
}

void clip_norm(std::vector<at::Tensor>& gradients, double threshold) {
  if (std::ranges::all_of(gradients, is_readable)) return clip_norm_on_host(gradients, threshold);
  at::_foreach_mul_(gradients, joint_norm(gradients).add(1e-6).reciprocal_().mul_(threshold).clamp_max_(1));
}

// Clips gradients that are divided among ranks; some ranks may have none. Every rank computes the same factor.
void clip_norm_of_all(const std::vector<at::Tensor>& gradients, double threshold, at::Device device,
                      const DividedGradients::SumOverRanks& sum_over_ranks) {
  at::Tensor squares = at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  if (std::ranges::all_of(gradients, is_readable)) {
    double sum = 0;
    for (const at::Tensor& gradient : gradients) sum += sum_of_squares(gradient);
    squares.fill_(sum);
  } else {
    squares.copy_(joint_norm(gradients)).square_();
  }
  sum_over_ranks(squares);
  const at::Tensor factor = squares.sqrt_().add_(1e-6).reciprocal_().mul_(threshold).clamp_max_(1);
  for (const at::Tensor& gradient : gradients) gradient.mul_(factor);
}

// The L2 norm of each row of dimension 0, in a shape that broadcasts to the tensor; for 0-d tensors, the norm of all
// elements.
at::Tensor unit_norms(const at::Tensor& tensor) {
  if (tensor.dim() <= 1) return at::linalg_vector_norm(tensor, 2);
  std::vector<std::int64_t> others;
  for (std::int64_t dim = 1; dim < tensor.dim(); ++dim) others.push_back(dim);
  return at::linalg_vector_norm(tensor, 2, others, /*keepdim=*/true);
}

void clip_adaptively(const at::Tensor& parameter, at::Tensor& gradient, const GradientClippingOptions& options) {
  const at::Tensor most = unit_norms(parameter).clamp_min_(options.min_weight_norm).mul_(options.clipping_threshold);
  gradient.mul_(most.div_(unit_norms(gradient)).nan_to_num_(1).clamp_max_(1));
}

// Expects each parameter once.
void clip(const optim::NamedParameters& parameters, const GradientClippingOptions& options,
          const DividedGradients::SumOverRanks& sum_over_ranks = {}) {
  const ClippingType type = options.clipping_type;
  const double threshold = options.clipping_threshold;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const auto& [name, parameter] : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (type != ClippingType::NORM && gradient.layout() != at::kStrided)
      throw ConfigError("GradientClipping: cannot clip the sparse gradient of ", name,
                        " by value or adaptively; clip by norm, or make its gradient dense");
    gradients.push_back(gradient);
    if (type == ClippingType::ADAPTIVE) clip_adaptively(parameter, gradients.back(), options);
  }
  if (type == ClippingType::NORM && sum_over_ranks && !parameters.empty())
    return clip_norm_of_all(gradients, threshold, parameters.front().tensor.device(), sum_over_ranks);
  if (gradients.empty()) return;
  if (type == ClippingType::NORM) clip_norm(gradients, threshold);
  if (type == ClippingType::VALUE) {
    for (at::Tensor& gradient : gradients) gradient.clamp_(-threshold, threshold);
  }
}

std::vector<Option<GradientClippingOptions>> gradient_clipping_options() {
  using O = GradientClippingOptions;
  return all_options(
      option("clipping_type", &O::clipping_type,
             {{"norm", ClippingType::NORM}, {"value", ClippingType::VALUE}, {"adaptive", ClippingType::ADAPTIVE}}),
      option("clipping_threshold", &O::clipping_threshold).example("1.0").above(0),
      option("min_weight_norm", &O::min_weight_norm).at_least(0));
}

}  // namespace

void apply_gradient_clipping(const std::vector<at::Tensor>& parameters, ClippingType type, double threshold,
                             double min_weight_norm) {
  optim::NamedParameters once;
  std::set<const void*> seen;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (seen.insert(parameters[i].unsafeGetTensorImpl()).second) once.push_back({join("parameter ", i), parameters[i]});
  clip(once, {.clipping_type = type, .clipping_threshold = threshold, .min_weight_norm = min_weight_norm});
}

GradientClipping::GradientClipping(GradientClippingOptions options)
    : options_(checked("GradientClipping", options, gradient_clipping_options())) {}

// Whether the optimizer's parameters have changed since the last call: some were replaced or added.
bool GradientClipping::has_changed(const State& state) {
  if (!state.optimizer) return false;
  std::size_t i = 0;
  bool changed = false;
  for (const auto& group : state.optimizer->param_groups())
    for (const at::Tensor& parameter : group.params()) {
      if (i == trained_.size()) trained_.push_back(nullptr);
      changed =
          std::exchange(trained_[i++], parameter.unsafeGetTensorImpl()) != parameter.unsafeGetTensorImpl() || changed;
    }
  return changed;
}

void GradientClipping::apply(Event event, State& state, Logger&) {
  // Collecting the model's parameters costs more than clipping those of a small model, so it is not done in every
  // batch.
  if (has_changed(state) || event == Event::INIT || state.timestamp.batch_in_epoch == 0 || parameters_.empty())
    parameters_ = optim::parameters_of(as_module(*state.model));
  if (event == Event::AFTER_TRAIN_BATCH) clip(parameters_, options_, sum_);
}

StateDict GradientClipping::local_hparams() const { return describe(options_, gradient_clipping_options()); }

namespace entries {

Entry<Algorithms> gradient_clipping() {
  return entry<GradientClipping>("gradient_clipping", "Limits the size of gradients", gradient_clipping_options());
}

}  // namespace entries
}  // namespace composer::algorithms

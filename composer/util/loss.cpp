#include "composer/util/loss.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include "composer/core/error.h"
#include "composer/util/to_device.h"

namespace composer {
namespace {

int code(Reduction reduction) {
  switch (reduction) {
    case Reduction::NONE:
      return at::Reduction::None;
    case Reduction::MEAN:
      return at::Reduction::Mean;
    case Reduction::SUM:
      return at::Reduction::Sum;
  }
  throw ConfigError("reduction must be NONE, MEAN or SUM, got ", static_cast<int>(reduction));
}

std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

// Converts whole numbers or booleans to int64, the only type that nll_loss takes.
at::Tensor classes(const at::Tensor& target) {
  if (!at::isIntegralType(target.scalar_type(), /*includeBool=*/true))
    throw DataError("classes must be whole numbers, got a target of type ", target.scalar_type(),
                    "; give target.to(at::kLong) if its numbers are classes");
  return target.scalar_type() == at::kLong ? target : target.to(at::kLong);
}

// Rejects whole numbers of the shape of the logits: target_weight sees only the type, and takes them for classes.
void check_probabilities(const at::Tensor& target) {
  if (!at::isIntegralType(target.scalar_type(), /*includeBool=*/true)) return;
  throw DataError("a target of the shape of the logits, ", target.sizes(), ", is probabilities, which must be ",
                  "floating-point numbers, got ", target.scalar_type(),
                  "; give target.to(at::kFloat), or the classes, target.argmax(1)");
}

// The mean over rows, divided by the share of rows that have a target. In this order it rounds as Composer does, whose
// targets are float32 even if the logits are not.
struct MeanOfRows {
  MeanOfRows(const at::Tensor& target, const at::Tensor& total)
      : rows(static_cast<double>(target.numel()) / static_cast<double>(target.size(1))),
        share(total.reciprocal().mul(rows)) {}
  at::Tensor operator()(const at::Tensor& losses) const { return losses.sum().neg_().div(rows).mul(share); }

  double rows;
  at::Tensor share;
};

// Computes what autograd would compute for MeanOfRows(target, target.sum())(log_softmax(logits) * target), with two
// kernels in the backward pass and no nodes in between.
struct MeanOfProbabilities final : torch::autograd::Function<MeanOfProbabilities> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& logits,
                            const at::Tensor& target) {
    const at::Tensor logs = at::log_softmax(at_least_float(logits), 1);
    const MeanOfRows mean(target, target.sum());
    context->save_for_backward({logits, target, logs, mean.share.nan_to_num(0, 0, 0)});
    context->saved_data["rows"] = mean.rows;
    return mean(logs.mul(target));
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &logits = saved[0], &target = saved[1], &logs = saved[2], &share = saved[3];
    const at::Tensor each = gradients[0].mul(share).div(context->saved_data["rows"].toDouble()).neg();
    const at::Tensor of_logs = each.expand_as(target).mul(target).to(logs.scalar_type());
    if (at::GradMode::is_enabled()) {  // for gradients of gradients
      const at::Tensor softmax = at::log_softmax(at_least_float(logits), 1).exp();
      return {(of_logs - softmax * of_logs.sum(1, /*keepdim=*/true)).to(logits.scalar_type()), {}};
    }
    return {at::_log_softmax_backward_data(of_logs, logs, 1, logs.scalar_type()).to(logits.scalar_type()), {}};
  }
};

at::Tensor of_probabilities(const at::Tensor& logits, const at::Tensor& given, const SoftCrossEntropyOptions& options) {
  const at::Tensor target = at_least_float(given);  // at least float32, because it is summed
  if (options.reduction == Reduction::MEAN && !options.weight.defined() && !target.requires_grad())
    return MeanOfProbabilities::apply(logits, target);
  at::Tensor loss = at::log_softmax(at_least_float(logits), 1).mul(target);
  if (options.weight.defined()) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(logits.dim()), 1);
    shape[1] = -1;
    loss = loss.mul(options.weight.view(shape));
  }
  switch (options.reduction) {
    case Reduction::NONE:
      return loss.sum(1).neg_();
    case Reduction::SUM:
      return loss.sum().neg_();
    case Reduction::MEAN:
      break;
  }
  const at::Tensor total = target.sum(), nothing = total.eq(0);
  return MeanOfRows(target, total.masked_fill(nothing, 1))(loss).masked_fill(nothing, NAN);  // NaN without a gradient
}

// Counts on the host without calling an operator, because every step does this.
LossWeight count_kept(const at::Tensor& target, std::int64_t ignored) {
  if (!target.is_cpu() || target.scalar_type() != at::kLong || !target.is_contiguous())
    return not_ignored(target, ignored).sum();
  const auto* const from = target.const_data_ptr<std::int64_t>();
  return static_cast<double>(target.numel() - std::count(from, from + target.numel(), ignored));
}

// Computes the weight on the device of the targets, so that the host does not wait.
LossWeight weight_of_classes(const at::Tensor& target, const at::Tensor& weight, std::int64_t ignored) {
  check_classes(target, weight.size(0), ignored);
  const at::Tensor on_device = util::to_device(target.flatten(), weight.device());
  const at::Tensor ignores = not_ignored(on_device, ignored).logical_not();
  return weight.index_select(0, on_device.masked_fill(ignores, 0)).masked_fill_(ignores, 0).sum(at::kDouble);
}

}  // namespace

std::optional<TargetKind> find_target_kind(const at::Tensor& logits, const at::Tensor& target) {
  const at::IntArrayRef scores = logits.sizes(), labels = target.sizes();
  if (scores == labels) return TargetKind::PROBABILITIES;
  const bool same = scores.size() >= 2 && scores.size() == labels.size() + 1 && scores[0] == labels[0] &&
                    scores.slice(2) == labels.slice(1);
  return same ? std::optional(TargetKind::INDICES) : std::nullopt;
}

TargetKind target_kind(const at::Tensor& logits, const at::Tensor& target) {
  if (const auto kind = find_target_kind(logits, target)) return *kind;
  throw DataError(
      "the target must have the shape of the logits (probabilities), or that without dimension 1 (classes); ",
      "logits are ", logits.sizes(), ", the target is ", target.sizes());
}

at::Tensor not_ignored(const at::Tensor& classes, std::int64_t ignore_index) {
  return classes.to(at::kLong).ne(ignore_index);
}

void check_classes(const at::Tensor& target, std::int64_t num_classes, std::optional<std::int64_t> ignore_index,
                   std::string_view metric) {
  if (!target.is_cpu() || target.numel() == 0) return;
  const at::Tensor wide = target.to(at::kLong).contiguous();
  const auto* const from = wide.const_data_ptr<std::int64_t>();
  const auto wrong = [&](std::int64_t i) {
    return (from[i] < 0 || from[i] >= num_classes) && !(ignore_index && from[i] == *ignore_index);
  };
  bool any = false;  // no branch in the loop: nearly always, all classes are valid
  for (std::int64_t i = 0; i < wide.numel(); ++i) any |= wrong(i);
  if (!any) return;
  std::int64_t first = 0;
  while (!wrong(first)) ++first;
  const std::int64_t sample = first / (wide.numel() / (wide.dim() == 0 ? 1 : wide.size(0)));
  std::string remedy;
  if (ignore_index) remedy = join("replace it by ", *ignore_index, ", which counts nothing, or ");
  throw DataError(metric, metric.empty() ? "" : ": ", "class ", from[first], " of sample ", sample,
                  " is out of range; classes are 0 to ", num_classes - 1, "; if it stands for no class, ", remedy,
                  "set ignore_index = ", from[first],
                  " in the options of the loss or of the metric; those of models::Classifier are its loss_fn, ",
                  "train_metrics and val_metrics");
}

at::Tensor at_least_float(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) ? tensor.to(at::kFloat) : tensor;
}

at::Tensor soft_cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                              const SoftCrossEntropyOptions& options) {
  if (target_kind(logits, target) == TargetKind::PROBABILITIES) {
    if (logits.dim() < 2)
      throw DataError("the logits must have their classes in dimension 1; logits and target are ", logits.sizes());
    check_probabilities(target);
    return of_probabilities(logits, target, options);
  }
  const at::Tensor indices = classes(target);
  try {
    return at::cross_entropy_loss(logits, indices, if_defined(options.weight), code(options.reduction),
                                  options.ignore_index);
  } catch (const c10::Error&) {
    // This check names the sample; that of libtorch does not.
    check_classes(indices, logits.size(1), options.ignore_index);
    throw;
  }
}

LossWeight target_weight(const at::Tensor& target, const SoftCrossEntropyOptions& options) {
  const at::NoGradGuard no_grad;
  const at::Tensor& weight = options.weight;
  LossWeight sum;
  if (!at::isIntegralType(target.scalar_type(), /*includeBool=*/true))
    sum = target.sum(at::kDouble);
  else if (weight.defined())
    sum = weight_of_classes(classes(target), weight, options.ignore_index);
  else
    sum = count_kept(target, options.ignore_index);
  return weight.defined() ? sum.of_kind() : sum;
}

at::Tensor binary_cross_entropy_with_logits(const at::Tensor& logits, const at::Tensor& target,
                                            const BinaryCrossEntropyOptions& options) {
  const at::Tensor loss =
      at::binary_cross_entropy_with_logits(logits, ensure_targets_one_hot(logits, target), if_defined(options.weight),
                                           if_defined(options.pos_weight), code(options.reduction));
  return options.scale_by_batch_size ? loss.div(logits.size(0)) : loss;
}

at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets) {
  if (outputs.sizes() != targets.sizes())
    throw DataError("mean_squared_error: the outputs are ", outputs.sizes(), ", and the targets ", targets.sizes(),
                    "; they must have one shape: targets.view_as(outputs) has it if only dimensions of 1 differ");
  return at::mse_loss(outputs, targets);
}

at::Tensor ensure_targets_one_hot(const at::Tensor& logits, const at::Tensor& target, std::int64_t num_classes) {
  if (target_kind(logits, target) == TargetKind::PROBABILITIES) {
    check_probabilities(target);
    return target;
  }
  const at::Tensor indices = classes(target).unsqueeze(1);
  std::vector<std::int64_t> shape = indices.sizes().vec();
  shape[1] = num_classes == 0 ? logits.size(1) : num_classes;
  const at::ScalarType type = logits.is_floating_point() ? logits.scalar_type() : at::kFloat;
  const at::Tensor one_hot = at::zeros(shape, target.options().dtype(type));
  try {
    return one_hot.scatter_(1, indices.clamp_min(0), indices.ge(0).to(type));
  } catch (const c10::Error&) {
    std::throw_with_nested(DataError("a target's class is larger than ", shape[1] - 1, ", the last one"));
  }
}

}  // namespace composer

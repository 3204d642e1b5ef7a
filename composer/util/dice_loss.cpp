#include "composer/util/dice_loss.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>

#include "composer/core/error.h"

namespace composer {
namespace {

at::Tensor activated(const at::Tensor& outputs, DiceActivation activation) {
  if (activation == DiceActivation::SIGMOID) return outputs.sigmoid();
  if (activation == DiceActivation::NONE) return outputs;
  if (outputs.size(1) == 1)
    throw DataError("dice_loss: the softmax of a single class is 1 everywhere; use SIGMOID for outputs ",
                    outputs.sizes());
  return at::softmax(outputs, 1);
}

}  // namespace

at::Tensor dice_loss(const at::Tensor& outputs, const at::Tensor& target, const DiceLossOptions& options) {
  if (outputs.dim() < 3)
    throw DataError("dice_loss: needs outputs [N, C, ...] of several pixels each, got ", outputs.sizes());
  const at::Tensor given = at_least_float(outputs);
  const at::Tensor rows = given.sizes() == target.sizes() ? target : ensure_targets_one_hot(given, target);
  const at::Tensor truth = rows.to(given.scalar_type());  // masks of zeros and ones may be whole numbers
  const at::Tensor output = activated(given, options.activation) * truth.sum(1, /*keepdim=*/true).ne(0);
  std::vector<std::int64_t> pixels;
  if (options.batch) pixels.push_back(0);
  for (std::int64_t dim = 2; dim < given.dim(); ++dim) pixels.push_back(dim);

  const auto area = [&](const at::Tensor& of) { return (options.squared_pred ? of.square() : of).sum(pixels); };
  const at::Tensor intersection = (truth * output).sum(pixels), of_truth = area(truth);
  at::Tensor both = of_truth + area(output);
  if (options.jaccard) both = 2 * (both - intersection);
  constexpr double kEpsilon = 1e-5;  // makes the loss 0 for a class that is in neither target nor output
  at::Tensor losses = 1 - (2 * intersection + kEpsilon) / (both + kEpsilon);

  at::Tensor counted = at::ones_like(losses);
  if (options.ignore_absent_classes) counted = (options.batch ? of_truth : of_truth.sum(0)).gt(0).expand_as(losses);
  losses = losses * counted;
  if (options.reduction == Reduction::NONE) return losses;
  return options.reduction == Reduction::SUM ? losses.sum() : losses.sum() / counted.sum().clamp_min(1);
}

}  // namespace composer

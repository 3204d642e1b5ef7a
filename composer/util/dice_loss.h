#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/util/loss.h"

namespace composer {

enum class DiceActivation : std::uint8_t {
  NONE,     // the outputs are probabilities
  SIGMOID,  // of each class separately
  SOFTMAX,  // over the classes
};

struct DiceLossOptions {
  DiceActivation activation = DiceActivation::SOFTMAX;  // Composer's default is NONE, but models give logits
  bool squared_pred = false;                            // squares outputs and targets in the denominator
  bool jaccard = false;                                 // intersection over union instead of Dice's coefficient
  bool batch = false;  // one value for all samples of a microbatch together, instead of one for each sample
  bool ignore_absent_classes = false;     // leaves out classes that no target of the microbatch has
  Reduction reduction = Reduction::MEAN;  // over samples and classes
};

// 1 - 2 * intersection / (target + output) for each class, where output and target are soft areas (arXiv:1606.04797).
// It suits segmentation, where most pixels are background. Outputs are [N, C, ...]; targets are classes [N, ...] or
// probabilities [N, C, ...]. Pixels without a target, such as those of a negative class, do not count. With
// Reduction::NONE the result is [N, C], or [C] with `batch`, and 0 for classes that are left out. Computed in float32
// at least; reads nothing on the host. Throws DataError for shapes that do not fit, and for SOFTMAX of a single class.
COMPOSER_EXPORT at::Tensor dice_loss(const at::Tensor& outputs, const at::Tensor& target,
                                     const DiceLossOptions& options = {});

}  // namespace composer

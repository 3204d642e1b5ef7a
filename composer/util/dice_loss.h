#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/util/loss.h"

namespace composer {

enum class DiceActivation : std::uint8_t {
  NONE,     // the outputs are probabilities
  SIGMOID,  // of each class on its own
  SOFTMAX,  // over the classes
};

struct DiceLossOptions {
  DiceActivation activation = DiceActivation::SOFTMAX;  // Composer's default is NONE, but models give logits
  bool squared_pred = false;                            // squares of outputs and targets in the sum below the line
  bool jaccard = false;                                 // intersection over union instead of Dice's coefficient
  bool batch = false;  // one figure for all samples of a microbatch together, instead of one for each sample
  bool ignore_absent_classes = false;     // only classes that some target of the microbatch has
  Reduction reduction = Reduction::MEAN;  // over samples and classes
};

// 1 - 2 * intersection / (target + output) of each class, where output and target overlap as soft areas
// (arXiv:1606.04797): for segmentation, where most pixels are background. Outputs [N, C, ...] and classes [N, ...] or
// probabilities [N, C, ...]; pixels without a target, as those of a negative class, count nothing. With NONE the result
// is [N, C], or [C] with `batch`, and 0 for classes that are left out. Computed in float32 at least; nothing is read on
// the host. Throws DataError for shapes that do not fit, and for SOFTMAX of a single class.
COMPOSER_EXPORT at::Tensor dice_loss(const at::Tensor& outputs, const at::Tensor& target,
                                     const DiceLossOptions& options = {});

}  // namespace composer

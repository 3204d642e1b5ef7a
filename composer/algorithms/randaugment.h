#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/algorithms/image_ops.h"
#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

struct RandAugmentOptions {
  double severity = 9;                                      // strength of the operations, 0 to 10
  std::int64_t depth = 2;                                   // operations per image, >= 0
  AugmentationSet augmentation_set = AugmentationSet::ALL;  // the operations to draw from: ALL, SAFE or ORIGINAL
  std::string input_key = "input";                          // name of the images in the batch
};

// Draws `depth` operations for each of N images [N, C, H, W]. Equal seeds give equal operations.
COMPOSER_EXPORT std::vector<ImageChanges> draw_randaugment(at::IntArrayRef sizes, const RandAugmentOptions& options,
                                                           std::uint64_t seed);

// The images are uint8, or floating-point with values from 0 to 1, which are rounded to 256 levels.
COMPOSER_EXPORT at::Tensor randaugment_batch(const at::Tensor& images, const std::vector<ImageChanges>& changes);

// Changes each image of a batch by random operations (arXiv:1909.13719). They depend only on the trainer's seed and the
// number of the batch, so a resumed run uses the same ones. Throws ConfigError at the first batch unless the input is
// [N, C, H, W] with one or three channels, in uint8 or a floating-point type; warns about values that are not from 0 to
// 1.
class COMPOSER_EXPORT RandAugment final : public Algorithm {
 public:
  explicit RandAugment(RandAugmentOptions options = {});  // throws ConfigError
  explicit RandAugment(EmptyOptions) : RandAugment(RandAugmentOptions{}) {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::AFTER_DATALOADER}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  RandAugmentOptions options_;
  bool is_checked_ = false;
};

}  // namespace composer::algorithms

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

struct AugMixOptions {
  double severity = 3;      // strength of the operations, 0 to 10
  std::int64_t depth = -1;  // operations per chain; 0 or less: 1 to 3 at random
  std::int64_t width = 3;   // chains per image, >= 1
  double alpha = 1;         // parameter of the Dirichlet and beta distributions of the shares, > 0
  AugmentationSet augmentation_set = AugmentationSet::ALL;  // the operations: ALL, SAFE or ORIGINAL, as in RandAugment
  std::string input_key = "input";                          // name of the images in the batch
};

// How one image is changed.
struct AugMixDraw {
  double mixing = 0;                 // weight of the changed images in the result
  std::vector<double> weights;       // weight of each chain among the changed images
  std::vector<ImageChanges> chains;  // as many as weights
};

// Draws the changes for each of N images [N, C, H, W]. Equal seeds give equal changes.
COMPOSER_EXPORT std::vector<AugMixDraw> draw_augmix(at::IntArrayRef sizes, const AugMixOptions& options,
                                                    std::uint64_t seed);

// Applies `draws`, which has N entries with the same number of chains. The images are uint8, or floating-point with
// values from 0 to 1, which are rounded to 256 levels.
COMPOSER_EXPORT at::Tensor augmix_batch(const at::Tensor& images, const std::vector<AugMixDraw>& draws);

// Mixes each image of a batch with several copies that were changed by chains of random operations (arXiv:1912.02781).
// The loss is not changed. The operations depend only on the trainer's seed and the number of the batch, so a resumed
// run uses the same ones. Throws ConfigError at the first batch unless the input is [N, C, H, W] with one or three
// channels, in uint8 or a floating-point type; warns about values that are not from 0 to 1.
class COMPOSER_EXPORT AugMix final : public Algorithm {
 public:
  explicit AugMix(AugMixOptions options = {});  // throws ConfigError
  explicit AugMix(EmptyOptions) : AugMix(AugMixOptions{}) {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::AFTER_DATALOADER}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  AugMixOptions options_;
  bool is_checked_ = false;
};

}  // namespace composer::algorithms

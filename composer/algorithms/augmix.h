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
  double severity = 3;      // 0 to 10; larger changes more
  std::int64_t depth = -1;  // operations per chain; 0 and below: 1 to 3 at random
  std::int64_t width = 3;   // >= 1; chains per image
  double alpha = 1;         // > 0; shape of the Dirichlet and beta distributions of the shares
  AugmentationSet augmentation_set = AugmentationSet::ALL;
  std::string input_key = "input";
};

// How one image is changed.
struct AugMixDraw {
  double mixing = 0;                 // share of the changed images in the result
  std::vector<double> weights;       // of each chain in the changed images
  std::vector<ImageChanges> chains;  // as many as weights
};

// Draws for each of N images [N, C, H, W]. The same for the same seed.
COMPOSER_EXPORT std::vector<AugMixDraw> draw_augmix(at::IntArrayRef sizes, const AugMixOptions& options,
                                                    std::uint64_t seed);

// Images in uint8, or with values from 0 to 1 in a floating-point type, which are rounded to 256 levels. `draws` has N
// entries with the same number of chains.
COMPOSER_EXPORT at::Tensor augmix_batch(const at::Tensor& images, const std::vector<AugMixDraw>& draws);

// Mixes each image of a batch with several that were made of it by chains of random operations (arXiv:1912.02781). The
// loss is not changed. The operations depend only on the trainer's seed and the number of the batch, so a resumed run
// uses the same. Throws ConfigError at the first batch unless the input is [N, C, H, W] with one or three channels, in
// uint8 or a floating-point type; warns of values that are not from 0 to 1.
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

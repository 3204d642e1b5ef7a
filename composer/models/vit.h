#pragma once
#include <cstdint>
#include <memory>

#include "composer/core/export.h"
#include "composer/models/classifier.h"

namespace composer::models {

struct VitOptions {
  std::int64_t image_size = 32;   // height and width in pixels, a multiple of patch_size
  std::int64_t patch_size = 4;    // height and width in pixels
  std::int64_t num_classes = 10;  // outputs
  std::int64_t in_channels = 3;   // channels of the images
  std::int64_t width = 192;       // a multiple of heads
  std::int64_t depth = 6;         // blocks
  std::int64_t heads = 3;         // of attention
  std::int64_t mlp_width = 0;     // 0: four times the width
  double dropout = 0;             // probability after the position embedding and in the feed-forward layers; in [0, 1)
  double attention_dropout = 0;   // of the probabilities of attention, in [0, 1)
};

// The vision transformer (Dosovitskiy et al. 2021, arXiv:2010.11929): patches, a class token and learned positions,
// `depth` pre-norm blocks, and a linear head on the class token. Parameters have the names, shapes and initialisation
// of torchvision's VisionTransformer, so {.image_size = 224, .patch_size = 16, .num_classes = 1000, .width = 768,
// .depth = 12, .heads = 12} loads the weights of vit_b_16. Throws DataError for images of another size.
COMPOSER_EXPORT std::shared_ptr<Classifier> vit(VitOptions options = {});

}  // namespace composer::models

#include "composer/algorithms/registry.h"

#include "composer/algorithms/gradient_clipping.h"
#include "composer/algorithms/label_smoothing.h"
#include "composer/algorithms/load_checkpoint.h"
#include "composer/algorithms/mixup.h"

namespace composer::algorithms {
namespace {

Entry<Algorithms> gradient_clipping() {
  using O = GradientClippingOptions;
  return entry<GradientClipping, O>(
      "gradient_clipping", "Keeps gradients from becoming too large",
      {option("clipping_type", &O::clipping_type,
              {{"norm", ClippingType::NORM}, {"value", ClippingType::VALUE}, {"adaptive", ClippingType::ADAPTIVE}})
           .refuses({"foo", ""}),
       option("clipping_threshold", &O::clipping_threshold).example("1.0").refuses({"0", "-1", "1x"})});
}

Entry<Algorithms> label_smoothing() {
  using O = LabelSmoothingOptions;
  return entry<LabelSmoothing, O>("label_smoothing", "Trains on targets that are a little uncertain",
                                  {option("smoothing", &O::smoothing).refuses({"-0.1", "1.1", "inf"}),
                                   option("target_key", &O::target_key).refuses({""})});
}

Entry<Algorithms> mixup() {
  using O = MixUpOptions;
  return entry<MixUp, O>(
      "mixup", "Trains on mixtures of two samples",
      {option("alpha", &O::alpha).refuses({"-1", "inf"}),
       option("interpolate_loss", &O::interpolate_loss).refuses({"yes"}),
       option("input_key", &O::input_key).refuses({""}), option("target_key", &O::target_key).refuses({""})});
}

}  // namespace

const Registry<Algorithms>& registry() {
  static const Registry<Algorithms> entries = {gradient_clipping(), label_smoothing(), mixup()};
  return entries;
}

}  // namespace composer::algorithms

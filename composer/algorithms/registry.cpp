#include "composer/algorithms/registry.h"

namespace composer::algorithms {

// Each is defined beside its class.
namespace entries {
Entry<Algorithms> blurpool();
Entry<Algorithms> cutout();
Entry<Algorithms> free_outputs();
Entry<Algorithms> ghost_batchnorm();
Entry<Algorithms> gradient_clipping();
Entry<Algorithms> label_smoothing();
Entry<Algorithms> mixup();
}  // namespace entries

const Registry<Algorithms>& registry() {
  // clang-format off
  static const Registry<Algorithms> entries = {
      entries::blurpool(),
      entries::cutout(),
      entries::free_outputs(),
      entries::ghost_batchnorm(),
      entries::gradient_clipping(),
      entries::label_smoothing(),
      entries::mixup(),
  };
  // clang-format on
  return entries;
}

}  // namespace composer::algorithms

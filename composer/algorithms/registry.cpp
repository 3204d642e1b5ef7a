#include "composer/algorithms/registry.h"

namespace composer::algorithms {

// Each is defined beside its class.
namespace entries {
Entry<Algorithms> blurpool();
Entry<Algorithms> free_outputs();
Entry<Algorithms> ghost_batchnorm();
Entry<Algorithms> gradient_clipping();
Entry<Algorithms> label_smoothing();
Entry<Algorithms> mixup();
}  // namespace entries

const Registry<Algorithms>& registry() {
  static const Registry<Algorithms> entries = {
      entries::blurpool(),          entries::free_outputs(),    entries::ghost_batchnorm(),
      entries::gradient_clipping(), entries::label_smoothing(), entries::mixup(),
  };
  return entries;
}

}  // namespace composer::algorithms

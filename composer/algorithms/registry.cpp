#include "composer/algorithms/registry.h"

namespace composer::algorithms {

// Each is defined beside its class.
namespace entries {
Entry<Algorithms> cutout();
Entry<Algorithms> free_outputs();
Entry<Algorithms> gradient_clipping();
Entry<Algorithms> label_smoothing();
Entry<Algorithms> mixup();
}  // namespace entries

const Registry<Algorithms>& registry() {
  static const Registry<Algorithms> entries = {
      entries::cutout(),          entries::free_outputs(), entries::gradient_clipping(),
      entries::label_smoothing(), entries::mixup(),
  };
  return entries;
}

}  // namespace composer::algorithms

#include "composer/algorithms/registry.h"

namespace composer::algorithms {

const Registry<Algorithms>& registry() {
  static const Registry<Algorithms> entries = {};
  return entries;
}

}  // namespace composer::algorithms

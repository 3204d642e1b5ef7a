#include "composer/callbacks/registry.h"

namespace composer::callbacks {

const Registry<Callbacks>& registry() {
  static const Registry<Callbacks> entries = {};
  return entries;
}

}  // namespace composer::callbacks

#include "composer/algorithms/free_outputs.h"

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/core/model_access.h"
#include "composer/core/state.h"

namespace composer::algorithms {

void FreeOutputs::apply(Event event, State& state, Logger&) {
  if (event == Event::INIT) {
    keeps_ = !metrics_of(*state.model, /*is_train=*/true).empty();
    if (keeps_) warn("FreeOutputs: the model has metrics of training, which need its outputs, so nothing is freed");
  } else if (!keeps_) {
    state.outputs.clear();
  }
}

namespace entries {

Entry<Algorithms> free_outputs() {
  return entry<FreeOutputs>("free_outputs", "Frees the model's outputs before the backward pass");
}

}  // namespace entries
}  // namespace composer::algorithms

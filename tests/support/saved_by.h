#pragma once
#include "composer/core/state_dict.h"

namespace composer::test {

// What a part of a run writes into a checkpoint.
template <class Part>
StateDict saved_by(Part&& part) {
  StateDict saved;
  StateVisitor visit = StateVisitor::saving(saved);
  part.visit_state(visit);
  return saved;
}

}  // namespace composer::test

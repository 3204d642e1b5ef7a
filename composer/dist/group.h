#pragma once
#include <string>

#include <c10/util/intrusive_ptr.h>

#include "composer/dist/store.h"
#include "composer/dist/world.h"

namespace composer::dist {

// Makes the group of all ranks, with Gloo for tensors on the CPU. Blocks until all ranks have called it.
c10::intrusive_ptr<c10d::ProcessGroup> make_group(const StorePtr& store, const Environment& environment,
                                                  const Options& options);

}  // namespace composer::dist

// Copies of a state that is written while training continues. Internal.
#pragma once
#include <vector>

#include <c10/core/Event.h>

#include "composer/core/state_dict.h"

namespace composer::saving {

// Copies tensors to the host. Tensors on a device are copied to pinned memory without waiting; the copies are complete
// when the returned events have occurred. Reuses the memory of `to` if it fits. Without `copies_host`, tensors on the
// host are not copied.
std::vector<c10::Event> copy_to_host(const StateDict& from, StateDict& to, bool copies_host);

}  // namespace composer::saving

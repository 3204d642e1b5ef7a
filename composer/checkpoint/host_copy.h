// Copies of a state that is written while training continues. Internal.
#pragma once
#include <vector>

#include <c10/core/Event.h>

#include "composer/core/state_dict.h"

namespace composer::saving {

// Copies tensors to the host: those on a device to pinned memory, without waiting; when the events that it returns have
// come, the copies are complete. Reuses the memory of what `to` had where it fits. Without `copies_host`, tensors on
// the host are not copied.
std::vector<c10::Event> copy_to_host(const StateDict& from, StateDict& to, bool copies_host);

}  // namespace composer::saving

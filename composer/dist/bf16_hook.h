// Sends gradients with half of the bytes. Internal.
#pragma once
#include <memory>

#include <c10/util/intrusive_ptr.h>

namespace c10d {
class CommHookInterface;
class ProcessGroup;
}  // namespace c10d

namespace composer::dist {

// Sends gradients as bf16 if their dtype is larger. The mean over ranks is also computed in bf16.
std::unique_ptr<c10d::CommHookInterface> bf16_hook(const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace composer::dist

#include "composer/data/batch_memory.h"

#include <utility>

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "composer/core/error.h"

namespace composer::data::detail {
namespace {

#ifdef __SANITIZE_THREAD__
// libtorch, where the last reference is given back, is not instrumented: the sanitizer would see no order between who
// read a batch and who writes the next one into its memory.
constexpr bool kReuse = false;
#else
constexpr bool kReuse = true;
#endif

}  // namespace

BatchMemory::BatchMemory(std::size_t keep, bool pin_memory) : keep_(kReuse ? keep : 0), pin_memory_(pin_memory) {}

at::Tensor BatchMemory::take(at::IntArrayRef sizes, at::ScalarType type, at::MemoryFormat format) {
  const auto options = at::TensorOptions(type).memory_format(format);
  if (pin_memory_) return at::empty(sizes, options.pinned_memory(true));
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  // A new tensor around old memory: nothing that was done to the old tensor (its shape, requires_grad) comes back.
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      storage(bytes), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  tensor.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return tensor;
}

c10::Storage BatchMemory::storage(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (c10::Storage& old : given_) {
    if (old.use_count() > 1 || old.nbytes() < bytes) continue;
    // The count was read without order. One more reference and back, which is ordered, puts what others read of this
    // memory before what is written to it now.
    { const c10::Storage again = old; }
    return old;
  }
  c10::Storage fresh = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte).storage();
  if (given_.size() < keep_) {
    given_.push_back(fresh);
  } else if (keep_ > 0) {
    given_[oldest_++ % keep_] = fresh;
  }
  return fresh;
}

void check_pin_memory(const char* who, bool pin_memory) {
  if (pin_memory && !at::globalContext().hasCUDA())
    throw ConfigError(who, ": pin_memory needs a CUDA device, and there is none");
}

}  // namespace composer::data::detail

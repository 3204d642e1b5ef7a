#include "composer/step/batch_undo.h"

#include <optional>

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>

#include "composer/core/model_access.h"

namespace composer {
namespace {

bool is_at(const at::Tensor& tensor, const at::Tensor& place) {
  if (!tensor.has_storage() || !place.has_storage()) return tensor.has_storage() == place.has_storage();
  return tensor.is_alias_of(place) && tensor.storage_offset() == place.storage_offset() &&
         tensor.sizes() == place.sizes() && tensor.strides() == place.strides();
}

// Buffers that libtorch usually does not allow to be written in place: expanded constants, and tensors made in
// inference mode.
bool is_hard_to_write(const at::Tensor& buffer) {
  return buffer.is_inference() || at::has_internal_overlap(buffer) == at::MemOverlap::Yes;
}

void write(at::Tensor& buffer, const at::Tensor& values) {
  if (is_hard_to_write(buffer)) {
    if (buffer.equal(values)) return;
    if (!buffer.is_inference()) return buffer.set_data(values);
  }
  const std::optional<c10::InferenceMode> allowed =
      buffer.is_inference() ? std::make_optional<c10::InferenceMode>() : std::nullopt;
  buffer.copy_(values);
}

}  // namespace

// These copies are hidden from observers of operators, which would take them for operators of the model.
BatchUndo::BatchUndo(State& state) {
  const at::DisableRecordFunctionGuard quiet;
  const at::NoGradGuard no_grad;
  random_.add(state.device);
  const std::vector<at::Tensor> buffers = composer::buffers(as_module(*state.model));
  buffers_.reserve(buffers.size());
  for (const at::Tensor& buffer : buffers) buffers_.push_back({buffer, buffer.detach(), buffer.clone()});
}

void BatchUndo::restore() {
  const at::DisableRecordFunctionGuard quiet;
  const at::NoGradGuard no_grad;
  random_.restore();
  for (Saved& saved : buffers_) {
    if (!is_at(saved.buffer, saved.place)) saved.buffer.set_data(saved.place);
    write(saved.buffer, saved.values);
  }
}

}  // namespace composer

#include "composer/step/batch_undo.h"

#include <ATen/ATen.h>

#include "composer/core/model.h"

namespace composer {

BatchUndo::BatchUndo(State& state) : buffers_(state.model->buffers()) {
  const at::NoGradGuard no_grad;
  random_.add(state.device);
  copies_.reserve(buffers_.size());
  for (const at::Tensor& buffer : buffers_) copies_.push_back(buffer.clone());
}

void BatchUndo::restore() {
  const at::NoGradGuard no_grad;
  random_.restore();
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(copies_[i]);
}

}  // namespace composer

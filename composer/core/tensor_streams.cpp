#include "composer/core/tensor_streams.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace composer {

void TensorStreams::add(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  if (std::ranges::find(streams_, tensor.device(), &c10::Stream::device) != streams_.end()) return;
  streams_.push_back(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
}

TensorStreams::Scope::Scope(const TensorStreams& streams) {
  for (const c10::Stream& stream : streams.streams_) guards_.push_back(std::make_unique<c10::StreamGuard>(stream));
}

TensorStreams::Scope::~Scope() {
  while (!guards_.empty()) guards_.pop_back();  // each guard restores the stream before it
}

}  // namespace composer

#include "composer/loggers/tensor_streams.h"

#include <algorithm>
#include <variant>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace composer::loggers {

void TensorStreams::add(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return;
  if (std::ranges::find(streams_, tensor.device(), &c10::Stream::device) != streams_.end()) return;
  streams_.push_back(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
}

void TensorStreams::add(const LogImages& images) {
  add(images.images);
  for (const LogMask& mask : images.masks) add(mask.classes);
}

void TensorStreams::add(const LogTable& table) {
  for (const std::vector<LogValue>& row : table.rows)
    for (const LogValue& value : row)
      if (const auto* cell = std::get_if<at::Tensor>(&value)) add(*cell);
}

void TensorStreams::add(const LogHistogram& histogram) {
  for (const at::Tensor& tensor : {histogram.counts, histogram.edges, histogram.left_out}) add(tensor);
}

TensorStreams::Scope::Scope(const TensorStreams& streams) {
  for (const c10::Stream& stream : streams.streams_) guards_.push_back(std::make_unique<c10::StreamGuard>(stream));
}

TensorStreams::Scope::~Scope() {
  while (!guards_.empty()) guards_.pop_back();  // each puts back what was before it
}

}  // namespace composer::loggers

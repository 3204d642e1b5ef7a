#include "composer/data/stack.h"

#include <algorithm>
#include <cstring>

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include "composer/core/error.h"

namespace composer::data::detail {
namespace {

// The tensors with this name, one from each sample.
std::vector<at::Tensor> parts_of(const std::string& name, const std::vector<Sample>& samples,
                                 std::span<const std::int64_t> indices) {
  std::vector<at::Tensor> parts;
  parts.reserve(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const at::Tensor* part = samples[i].find(name);
    if (!part || samples[i].size() != samples[0].size())
      throw DataError("samples of a batch must have the same names: sample ", indices[0], " has ", samples[0].size(),
                      " tensors, one of them \"", name, "\"; sample ", indices[i], " has ", samples[i].size(),
                      part ? "" : ", none with that name");
    if (!part->defined()) throw DataError("sample ", indices[i], ": \"", name, "\" is undefined");
    if (i > 0 && (part->sizes() != parts[0].sizes() || part->scalar_type() != parts[0].scalar_type()))
      throw DataError("samples of a batch must have the same shape and type: \"", name, "\" of sample ", indices[0],
                      " is ", parts[0].sizes(), " of ", parts[0].scalar_type(), ", of sample ", indices[i], " ",
                      part->sizes(), " of ", part->scalar_type(), "; collate can pad them");
    parts.push_back(*part);
  }
  return parts;
}

}  // namespace

Batch Stack::operator()(const std::vector<Sample>& samples, std::span<const std::int64_t> indices) {
  Batch batch;
  std::size_t index = 0;
  for (const auto& [name, tensor] : samples.front()) batch.set(name, stack(parts_of(name, samples, indices), index++));
  return batch;
}

at::Tensor Stack::stack(std::span<const at::Tensor> parts, std::size_t index) {
  const at::Tensor& first = parts.front();
  if (!std::ranges::all_of(parts,
                           [](const at::Tensor& part) { return part.is_cpu() && part.layout() == at::kStrided; }))
    return at::stack(at::TensorList(parts.data(), parts.size()));
  at::DimVector shape(first.sizes());
  shape.insert(shape.begin(), static_cast<std::int64_t>(parts.size()));
  at::Tensor out = memory(index).take(shape, first.scalar_type());
  const auto bytes = static_cast<std::size_t>(first.numel()) * first.element_size();
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (std::size_t i = 0; i < parts.size(); ++i, to += bytes) {
    if (parts[i].is_contiguous() && !parts[i].is_neg() && !parts[i].is_conj()) {
      if (bytes > 0) std::memcpy(to, parts[i].const_data_ptr(), bytes);
    } else {
      out.select(0, static_cast<std::int64_t>(i)).copy_(parts[i]);
    }
  }
  return out;
}

BatchMemory& Stack::memory(std::size_t index) {
  const std::lock_guard lock(mutex_);
  while (memory_.size() <= index) memory_.push_back(std::make_unique<BatchMemory>(keep_, pin_memory_));
  return *memory_[index];
}

}  // namespace composer::data::detail

// Collectives of texts. The lengths are sent first, then the bytes in a tensor.
#include <algorithm>
#include <cstring>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "composer/dist/world.h"

namespace composer::dist {
namespace {

at::Tensor tensor_of(std::string_view bytes, std::int64_t length) {
  at::Tensor tensor = at::zeros({length}, at::kByte);
  if (!bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string text_of(const at::Tensor& tensor, std::int64_t length) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::size_t>(length)};
}

at::Tensor length_of(std::string_view bytes) {
  return at::full({1}, static_cast<std::int64_t>(bytes.size()), at::kLong);
}

}  // namespace

std::string World::broadcast(std::string_view bytes, int root) {
  if (is_alone()) return std::string(bytes);
  const at::Tensor length = length_of(bytes);
  broadcast(length, root);
  const auto count = length.item<std::int64_t>();
  if (rank() != root) bytes = {};
  const at::Tensor tensor = tensor_of(bytes, count);
  broadcast(tensor, root);
  return text_of(tensor, count);
}

std::vector<std::string> World::all_gather(std::string_view bytes) {
  if (is_alone()) return {std::string(bytes)};
  std::vector<std::int64_t> lengths;
  for (const at::Tensor& length : all_gather(length_of(bytes))) lengths.push_back(length.item<std::int64_t>());
  const std::int64_t longest = *std::ranges::max_element(lengths);
  const std::vector<at::Tensor> tensors = all_gather(tensor_of(bytes, longest));
  std::vector<std::string> texts;
  texts.reserve(tensors.size());
  for (std::size_t rank = 0; rank < tensors.size(); ++rank) texts.push_back(text_of(tensors[rank], lengths[rank]));
  return texts;
}

}  // namespace composer::dist

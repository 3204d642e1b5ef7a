#include "composer/trainer/joined_outputs.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/ops/cat.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/safetensors.h"
#include "composer/trainer/ranks.h"

namespace composer {
namespace {

using Batches = std::vector<Outputs>;

// Names are "batch/place/name", because a file of tensors has an order of its own.
std::string bytes_of(const Batches& batches) {
  formats::NamedTensors tensors;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    std::size_t place = 0;
    for (const auto& [name, tensor] : batches[b]) tensors.emplace_back(join(b, '/', place++, '/', name), tensor);
  }
  std::string bytes;
  formats::write_safetensors(tensors, {{"batches", std::to_string(batches.size())}},
                             [&](std::uint64_t offset, const void* data, std::size_t size) {
                               bytes.resize(std::max<std::size_t>(bytes.size(), offset + size));
                               std::memcpy(bytes.data() + offset, data, size);
                             });
  return bytes;
}

std::size_t number_in(std::string_view text) {
  std::size_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Batches batches_in(std::string bytes) {
  const formats::SafetensorsFile file(formats::bytes_in_memory(std::move(bytes), "the outputs of a rank"));
  std::size_t count = 0;
  for (const auto& [key, value] : file.metadata())
    if (key == "batches") count = number_in(value);
  std::vector<std::vector<std::pair<std::size_t, Tensors::Item>>> found(count);
  for (auto& [key, tensor] : file.read_all()) {
    const std::size_t first = key.find('/'), second = key.find('/', first + 1);
    const std::string_view text = key;
    found.at(number_in(text.substr(0, first)))
        .push_back({number_in(text.substr(first + 1, second - first - 1)), {key.substr(second + 1), tensor}});
  }
  Batches batches(count);
  for (std::size_t b = 0; b < count; ++b) {
    std::ranges::sort(found[b], {}, [](const auto& one) { return one.first; });
    for (auto& [place, item] : found[b]) batches[b].set(item.first, std::move(item.second));
  }
  return batches;
}

Batches in_order(std::vector<Batches> by_rank, bool slices) {
  Batches all;
  std::size_t most = 0;
  for (const Batches& one : by_rank) most = std::max(most, one.size());
  if (slices)
    for (std::size_t b = 0; b < most; ++b) {
      for (Batches& one : by_rank)
        if (b < one.size()) all.push_back(std::move(one[b]));
    }
  else
    for (Batches& one : by_rank) std::ranges::move(one, std::back_inserter(all));
  std::erase_if(all, [](const Outputs& one) { return one.empty(); });
  return all;
}

std::string kind_of(const at::Tensor& tensor) { return join(tensor.sizes().slice(1), ' ', tensor.scalar_type()); }

void check_rows(const Batches& all) {
  for (const Outputs& one : all)
    for (const auto& [name, first] : all.front()) {
      const at::Tensor* const tensor = one.size() == all.front().size() ? one.find(name) : nullptr;
      if (!tensor) throw DataError("predict_all: the model does not return the same tensors for each batch");
      if (tensor->dim() == 0)
        throw DataError("predict_all: the output \"", name, "\" is one number for the whole batch; use predict()");
      if (tensor->sizes().slice(1) != first.sizes().slice(1) || tensor->scalar_type() != first.scalar_type())
        throw DataError("predict_all: the rows of the output \"", name, "\" are ", kind_of(first), " in one batch and ",
                        kind_of(*tensor), " in another; use predict()");
    }
}

}  // namespace

Outputs joined_outputs(const Ranks& ranks, std::vector<Outputs> batches) {
  std::vector<Batches> by_rank;
  if (ranks.alone()) {
    by_rank.push_back(std::move(batches));
  } else {
    const std::string own = ranks.together([&] { return bytes_of(batches); });
    for (std::string& bytes : ranks.world()->all_gather(own)) by_rank.push_back(batches_in(std::move(bytes)));
  }
  const Batches all = in_order(std::move(by_rank), ranks.splits());
  Outputs joined;
  if (all.empty()) return joined;
  check_rows(all);
  for (const auto& [name, first] : all.front()) {
    std::vector<at::Tensor> rows;
    rows.reserve(all.size());
    for (const Outputs& one : all) rows.push_back(one.at(name));
    joined.set(name, at::cat(rows));
  }
  return joined;
}

}  // namespace composer

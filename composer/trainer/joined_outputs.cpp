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
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/safetensors.h"
#include "composer/trainer/ranks.h"

namespace composer {
namespace {

using Batches = std::vector<PredictedBatch>;

// Names are "batch/place/name", because a file of tensors has an order of its own. At place 0 are the samples.
std::string bytes_of(const Batches& batches) {
  formats::NamedTensors tensors;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    if (batches[b].outputs.empty()) continue;
    std::size_t place = 0;
    tensors.emplace_back(join(b, '/', place++, '/'), batches[b].samples);
    for (const auto& [name, tensor] : batches[b].outputs)
      tensors.emplace_back(join(b, '/', place++, '/', name), tensor);
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
    for (auto& [place, item] : found[b])
      if (place == 0)
        batches[b].samples = std::move(item.second);
      else
        batches[b].outputs.set(item.first, std::move(item.second));
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
  std::erase_if(all, [](const PredictedBatch& one) { return one.outputs.empty(); });
  return all;
}

std::string kind_of(const at::Tensor& tensor) { return join(tensor.sizes().slice(1), ' ', tensor.scalar_type()); }

void check_rows(const Batches& all) {
  const Outputs& expected = all.front().outputs;
  for (const auto& [one, samples] : all)
    for (const auto& [name, first] : expected) {
      const at::Tensor* const tensor = one.size() == expected.size() ? one.find(name) : nullptr;
      if (!tensor) throw DataError("predict_all: the model does not return the same tensors for each batch");
      if (tensor->dim() == 0)
        throw DataError("predict_all: the output \"", name, "\" is one number for the whole batch; use predict()");
      if (tensor->size(0) != samples.size(0))
        throw DataError("predict_all: the output \"", name, "\" has the shape ", tensor->sizes(), " for a batch of ",
                        samples.size(0), " samples, and needs ", samples.size(0), " rows; move the dimension of the ",
                        "samples to the front, as with transpose(0, 1), or use predict()");
      if (tensor->sizes().slice(1) != first.sizes().slice(1) || tensor->scalar_type() != first.scalar_type())
        throw DataError("predict_all: the rows of the output \"", name, "\" are ", kind_of(first), " in one batch and ",
                        kind_of(*tensor), " in another; use predict()");
    }
}

// The place of each sample's row, by its index; empty unless each index up to the number of rows is there once.
std::vector<std::int64_t> places_of(const Batches& all) {
  std::vector<std::int64_t> indices;
  for (const PredictedBatch& one : all) {
    const auto* const begin = one.samples.const_data_ptr<std::int64_t>();
    indices.insert(indices.end(), begin, begin + one.samples.numel());
  }
  std::vector<std::int64_t> places(indices.size(), -1);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::int64_t index = indices[i];
    if (index < 0 || index >= std::ssize(places)) return {};
    std::int64_t& place = places[static_cast<std::size_t>(index)];
    if (std::exchange(place, static_cast<std::int64_t>(i)) != -1) return {};
  }
  return places;
}

}  // namespace

PredictedBatch predicted(Outputs outputs, std::int64_t samples, const std::vector<std::int64_t>& indices) {
  return {std::move(outputs), indices.empty() ? at::full({samples}, -1, at::kLong) : at::tensor(indices, at::kLong)};
}

JoinedOutputs joined_outputs(const Ranks& ranks, std::vector<PredictedBatch> batches) {
  std::vector<Batches> by_rank;
  if (ranks.alone()) {
    by_rank.push_back(std::move(batches));
  } else {
    const std::string own = ranks.together([&] { return bytes_of(batches); });
    for (std::string& bytes : ranks.world()->all_gather(own)) by_rank.push_back(batches_in(std::move(bytes)));
  }
  const Batches all = in_order(std::move(by_rank), ranks.splits());
  if (all.empty()) return {.in_data_order = true};
  check_rows(all);
  const std::vector<std::int64_t> places = places_of(all);
  JoinedOutputs joined{.in_data_order = !places.empty()};
  const bool moves = !std::ranges::is_sorted(places);
  for (const auto& [name, first] : all.front().outputs) {
    std::vector<at::Tensor> rows;
    rows.reserve(all.size());
    for (const PredictedBatch& one : all) rows.push_back(one.outputs.at(name));
    const at::Tensor in_turn = at::cat(rows);
    joined.outputs.set(name, moves ? in_turn.index_select(0, at::tensor(places, at::kLong)) : in_turn);
  }
  return joined;
}

}  // namespace composer

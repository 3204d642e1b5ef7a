#include "composer/data/text/pad_collate.h"

#include <algorithm>
#include <span>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/core/option.h"

namespace composer::data {
namespace {

constexpr std::int64_t kNoTarget = -100;

std::vector<Option<PadCollateOptions>> pad_collate_options() {
  using O = PadCollateOptions;
  return all_options(
      option("pad", &O::pad), option("names", &O::names).not_empty(), option("max_length", &O::max_length).at_least(0),
      option("multiple_of", &O::multiple_of).at_least(1), option("target", &O::target), option("mask", &O::mask));
}

class PadCollate {
 public:
  explicit PadCollate(PadCollateOptions options) : options_(std::move(options)) {}

  Batch operator()(const std::vector<Sample>& samples) const {
    std::vector<std::int64_t> lengths;
    for (const Sample& sample : samples) lengths.push_back(length_of(sample));
    const std::int64_t longest = std::max<std::int64_t>(1, std::ranges::max(lengths));
    const std::int64_t width = (longest + options_.multiple_of - 1) / options_.multiple_of * options_.multiple_of;
    Batch batch;
    for (const auto& [name, tensor] : samples.front()) {
      std::vector<at::Tensor> parts;
      for (const Sample& sample : samples) parts.push_back(sample.at(name));
      const bool is_padded = std::ranges::find(options_.names, name) != options_.names.end();
      const bool has_targets = !is_padded && name == options_.target && tensor.dim() == 1;
      batch.set(name, is_padded || has_targets
                          ? padded(name, parts, lengths, width, is_padded ? options_.pad : kNoTarget)
                          : at::stack(parts));
    }
    if (!options_.mask.empty()) {
      const at::Tensor mask = at::zeros({static_cast<std::int64_t>(samples.size()), width}, at::kLong);
      for (std::size_t i = 0; i < samples.size(); ++i)
        std::fill_n(mask.mutable_data_ptr<std::int64_t>() + static_cast<std::int64_t>(i) * width, lengths[i], 1);
      batch.set(options_.mask, mask);
    }
    return batch;
  }

 private:
  // The number of tokens that are used.
  std::int64_t length_of(const Sample& sample) const {
    const at::Tensor& tokens = sample.at(options_.names.front());
    if (tokens.dim() != 1)
      throw DataError("pad_collate: \"", options_.names.front(), "\" must be [tokens], got ", tokens.sizes());
    return options_.max_length > 0 ? std::min(tokens.size(0), options_.max_length) : tokens.size(0);
  }

  at::Tensor padded(const std::string& name, std::span<const at::Tensor> parts, std::span<const std::int64_t> lengths,
                    std::int64_t width, std::int64_t pad) const {
    at::Tensor all = at::full({static_cast<std::int64_t>(parts.size()), width}, pad, parts.front().options());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t length = parts[i].dim() == 1 ? parts[i].size(0) : -1;
      const std::int64_t used = options_.max_length > 0 ? std::min(length, options_.max_length) : length;
      if (used != lengths[i])
        throw DataError("pad_collate: \"", name, "\" of sample ", i, " of the batch has the shape ", parts[i].sizes(),
                        ", and \"", options_.names.front(), "\" has ", lengths[i], " tokens");
      if (used > 0) all[static_cast<std::int64_t>(i)].narrow(0, 0, used).copy_(parts[i].narrow(0, 0, used));
    }
    return all;
  }

  PadCollateOptions options_;
};

}  // namespace

std::function<Batch(std::vector<Sample>)> pad_collate(PadCollateOptions options) {
  return PadCollate(checked("pad_collate", std::move(options), pad_collate_options()));
}

}  // namespace composer::data

#include "composer/data/data_spec.h"

#include <algorithm>

#include "composer/core/error.h"
#include "composer/util/loss.h"

namespace composer {

std::int64_t get_num_samples_in_batch(const Batch& batch) {
  std::int64_t samples = -1;
  const std::string* first = nullptr;
  for (const auto& [name, tensor] : batch) {
    if (!tensor.defined()) throw DataError("the batch's tensor \"", name, "\" is undefined");
    if (tensor.dim() == 0) continue;
    if (first && tensor.size(0) != samples)
      throw DataError("a batch's tensors must have the same length: \"", *first, "\" has ", samples, " rows, \"", name,
                      "\" has ", tensor.size(0),
                      "; if that is right, set get_num_samples_in_batch and split_batch of the DataSpec");
    if (!first) first = &name;
    samples = tensor.size(0);
  }
  if (!first) throw DataError("the batch has no tensor with dimensions, so its samples cannot be counted");
  return samples;
}

TokenCount get_num_tokens_in_batch(const Batch& batch) {
  const at::Tensor* ids = batch.find("input_ids");
  if (!ids) return 0;
  const at::Tensor* target = batch.find("target");
  const bool each_has_one = target && target->is_cpu() && target->sizes() == ids->sizes() &&
                            at::isIntegralType(target->scalar_type(), /*includeBool=*/false);
  if (!each_has_one) return ids->numel();
  return {ids->numel(), static_cast<std::int64_t>(target_weight(*target).number())};
}

std::vector<Batch> split_batch(const Batch& batch, std::int64_t microbatch_size) {
  if (microbatch_size < 1) throw ConfigError("split_batch: the microbatch size must be >= 1, got ", microbatch_size);
  const std::int64_t samples = get_num_samples_in_batch(batch);
  if (samples < microbatch_size)
    warn(join("a batch of ", samples, " samples is smaller than the microbatch size of ", microbatch_size,
              ": it is not split"));
  if (samples <= microbatch_size) return {batch};

  std::vector<Batch> parts;
  parts.reserve(static_cast<std::size_t>((samples + microbatch_size - 1) / microbatch_size));
  for (std::int64_t from = 0; from < samples; from += microbatch_size) {
    Batch& part = parts.emplace_back(batch);
    for (auto& [name, tensor] : part)
      if (tensor.dim() > 0) tensor = tensor.slice(0, from, std::min(from + microbatch_size, samples));
  }
  return parts;
}

}  // namespace composer

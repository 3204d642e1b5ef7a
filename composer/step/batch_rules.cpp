#include "composer/step/batch_rules.h"

#include "composer/core/error.h"

namespace composer {

std::int64_t BatchRules::count_samples(const Batch& batch) const {
  return spec_.get_num_samples_in_batch ? spec_.get_num_samples_in_batch(batch) : get_num_samples_in_batch(batch);
}

TokenCount BatchRules::count_tokens(const Batch& batch) const {
  return spec_.get_num_tokens_in_batch ? spec_.get_num_tokens_in_batch(batch) : get_num_tokens_in_batch(batch);
}

std::vector<Batch> BatchRules::split(const Batch& batch, std::int64_t size) const {
  if (size == 0 || (!spec_.split_batch && size >= count_samples(batch))) return std::vector<Batch>(1, batch);
  std::vector<Batch> parts = spec_.split_batch ? spec_.split_batch(batch, size) : split_batch(batch, size);
  if (parts.empty()) throw DataError(label_, " loader: split_batch gave no microbatch");
  return parts;
}

void BatchRules::transform(Batch& batch) const {
  if (spec_.batch_transforms) spec_.batch_transforms(batch);
}

void BatchRules::transform_microbatch(Batch& microbatch) const {
  if (spec_.microbatch_transforms) spec_.microbatch_transforms(microbatch);
}

}  // namespace composer

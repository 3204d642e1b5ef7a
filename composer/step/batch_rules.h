#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "composer/data/data_spec.h"

namespace composer {

// How the batches of a DataSpec are counted, split and transformed: by the functions of the DataSpec, or by the
// defaults where it has none.
class BatchRules {
 public:
  BatchRules() = default;
  // `label` is the loader's label, for errors.
  BatchRules(AnyDataSpec spec, std::string label) : spec_(std::move(spec)), label_(std::move(label)) {}

  const AnyDataSpec& spec() const { return spec_; }
  const std::string& label() const { return label_; }

  std::int64_t count_samples(const Batch& batch) const;
  TokenCount count_tokens(const Batch& batch) const;
  // Whether the DataSpec counts tokens itself.
  bool has_token_count() const { return static_cast<bool>(spec_.get_num_tokens_in_batch); }
  // Splits into microbatches of at most `size` samples. `size` 0: returns the batch itself as the only one.
  std::vector<Batch> split(const Batch& batch, std::int64_t size) const;
  bool has_batch_transforms() const { return static_cast<bool>(spec_.batch_transforms); }
  bool has_microbatch_transforms() const { return static_cast<bool>(spec_.microbatch_transforms); }
  void transform(Batch& batch) const;
  void transform_microbatch(Batch& microbatch) const;  // to be called on the device

 private:
  AnyDataSpec spec_;
  std::string label_;
};

}  // namespace composer

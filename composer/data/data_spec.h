#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/loader.h"

namespace composer {

struct TokenCount {
  TokenCount(std::int64_t tokens) : total(tokens), loss_generating(tokens) {}
  TokenCount(std::int64_t all, std::int64_t with_loss) : total(all), loss_generating(with_loss) {}
  std::int64_t total;            // what timestamps count
  std::int64_t loss_generating;  // what weighs a microbatch, if the trainer accumulates on tokens
};

// A loader and what its batches mean. Functions that are not set do the default below.
struct DataSpec {
  std::shared_ptr<Loader> dataloader = {};
  std::function<void(Batch&)> batch_transforms = {};       // on the whole batch on the host, before it is counted
  std::function<void(Batch&)> microbatch_transforms = {};  // on each microbatch, on the device
  std::function<std::vector<Batch>(const Batch&, std::int64_t microbatch_size)> split_batch = {};
  std::function<std::int64_t(const Batch&)> get_num_samples_in_batch = {};
  std::function<TokenCount(const Batch&)> get_num_tokens_in_batch = {};
};

// Rows of dimension 0, at most `microbatch_size` in each part, as views. One part (and a warning) if the batch is
// smaller than that. Tensors without dimensions go into every part. Throws DataError if lengths differ, ConfigError for
// a size < 1.
COMPOSER_EXPORT std::vector<Batch> split_batch(const Batch& batch, std::int64_t microbatch_size);
// Rows of dimension 0, the same in every tensor that has dimensions. Throws DataError otherwise.
COMPOSER_EXPORT std::int64_t get_num_samples_in_batch(const Batch& batch);
// Elements of "input_ids" if there is one, padding included; else 0.
COMPOSER_EXPORT TokenCount get_num_tokens_in_batch(const Batch& batch);

// What a trainer's option accepts: a DataSpec, or just a loader.
class AnyDataSpec : public DataSpec {
 public:
  AnyDataSpec() = default;
  AnyDataSpec(DataSpec spec) : DataSpec(std::move(spec)) {}
  template <std::derived_from<Loader> L>
  AnyDataSpec(std::shared_ptr<L> loader) : DataSpec{std::move(loader)} {}
  explicit operator bool() const { return dataloader != nullptr; }
};

}  // namespace composer

#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/loader.h"

namespace composer {

struct TokenCount {
  TokenCount(std::int64_t tokens) : total(tokens), loss_generating(tokens) {}
  TokenCount(std::int64_t all, std::int64_t with_loss) : total(all), loss_generating(with_loss) {}
  std::int64_t total;            // added to timestamps
  std::int64_t loss_generating;  // weight of a microbatch if accumulate_train_batch_on_tokens is set
};

// A loader, and how its batches are interpreted. Functions that are unset default to those declared below.
struct DataSpec {
  std::shared_ptr<Loader> dataloader = {};
  std::function<void(Batch&)> batch_transforms = {};       // called on the whole batch on the host, before counting
  std::function<void(Batch&)> microbatch_transforms = {};  // called on each microbatch on the device
  std::function<std::vector<Batch>(const Batch&, std::int64_t microbatch_size)> split_batch = {};
  std::function<std::int64_t(const Batch&)> get_num_samples_in_batch = {};
  std::function<TokenCount(const Batch&)> get_num_tokens_in_batch = {};
};

// Splits along dimension 0 into views of at most `microbatch_size` rows. If the batch is smaller, warns and returns it
// as one part. 0-dimensional tensors are in every part. Throws DataError if lengths differ, ConfigError for a size < 1.
COMPOSER_EXPORT std::vector<Batch> split_batch(const Batch& batch, std::int64_t microbatch_size);
// Returns the length of dimension 0. Throws DataError unless it is equal in all tensors that have dimensions.
COMPOSER_EXPORT std::int64_t get_num_samples_in_batch(const Batch& batch);
// Returns the number of elements of "input_ids", including padding; 0 without that tensor. If "target" is on the host
// and has a class for each element, the classes that are not -100 generate loss; otherwise all elements do.
COMPOSER_EXPORT TokenCount get_num_tokens_in_batch(const Batch& batch);

namespace detail {
template <class T>
concept LoaderOrSpec = std::convertible_to<T, DataSpec> || std::convertible_to<T, std::shared_ptr<Loader>>;
}  // namespace detail

// The type of the trainer's options for data: accepts a DataSpec, or just a loader.
class AnyDataSpec : public DataSpec {
 public:
  AnyDataSpec() = default;
  AnyDataSpec(DataSpec spec) : DataSpec(std::move(spec)) {}
  template <std::derived_from<Loader> L>
  AnyDataSpec(std::shared_ptr<L> loader) : DataSpec{std::move(loader)} {}
  // Names the wrong type in the error; see AnyModel.
  template <class T>
  requires(!detail::LoaderOrSpec<T> && !std::derived_from<std::remove_cvref_t<T>, AnyDataSpec>) AnyDataSpec(T&&) {
    static_assert(detail::LoaderOrSpec<T>,
                  "not a loader: give what data::in_memory() or data::map_style() return, a std::shared_ptr to a class "
                  "that derives publicly from Loader, or a DataSpec");
  }
  explicit operator bool() const { return dataloader != nullptr; }
};

}  // namespace composer

#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/loader.h"
#include "composer/util/random.h"

namespace composer::data {

// One sample: a few named tensors without the batch dimension. A single tensor is named "input".
class COMPOSER_EXPORT Sample : public Tensors {
 public:
  Sample() = default;
  Sample(std::initializer_list<Item> items) : Tensors(items) {}
  Sample(at::Tensor only) : Tensors("input", std::move(only)) {}
};

struct MapStyleOptions {
  std::int64_t batch_size = 0;  // required: number of samples in a batch, >= 1
  bool shuffle = true;          // a new order in each epoch, which depends only on (seed, epoch)
  // Seed of the order and of get()'s random numbers. Unset: the trainer's, or 17 in evaluation and without a trainer.
  std::optional<std::uint64_t> seed = {};
  bool drop_last = false;   // omits an epoch's last batch if it is smaller
  at::Tensor weights = {};  // [N]: draws samples with replacement, in proportion to these; undefined: each once
  std::int64_t samples_per_epoch = 0;  // with weights: number of samples that an epoch draws; 0: N
  std::int64_t num_workers = 0;        // number of background threads that make batches; 0: next() makes them
  std::int64_t prefetch_factor = 2;    // number of batches per worker that are ready or being made; limits memory
  // Makes a batch of its samples. Unset: stacks the tensors of each name, which must have one shape and dtype.
  std::function<Batch(std::vector<Sample>)> collate = {};
  bool pin_memory = false;  // batches in page-locked memory, so that copies to a GPU do not block; requires CUDA
  at::Tensor lengths = {};  // [N]: lengths of the samples; batches are then made of samples of like length
  std::int64_t bucket_batches = 100;  // number of batches sorted by length together; more: less padding, less random
};

// Samples by index. With workers, `get` and `collate` are called from several threads at once.
struct SampleSource {
  std::int64_t size = 0;
  // Use `random` for random numbers: it depends only on (seed, epoch, index).
  std::function<Sample(std::int64_t index, RandomStream random)> get = {};
};

// Returns a loader that makes batches from single samples. Batches depend only on their position, not on the number of
// workers: a resumed run reads nothing twice. libtorch's operators use one processor inside a worker. An error of get()
// or collate is thrown by the next() that returns this batch, nested in a DataError with the sample, epoch and batch;
// the following next() returns the following batch. The destructor waits for the samples that are being made. Throws
// ConfigError for invalid options, DataError for data without samples.
COMPOSER_EXPORT std::shared_ptr<Loader> map_style(SampleSource source, MapStyleOptions options);

// Any type with `std::int64_t size() const` and `Sample get(std::int64_t index, RandomStream random) const`, or
// `get(index)`; const, because workers share the data set. size() is called once.
template <class D>
concept DrawingDataset = requires(const D& data, std::int64_t index, RandomStream random) {
  { data.size() } -> std::convertible_to<std::int64_t>;
  { data.get(index, random) } -> std::convertible_to<Sample>;
};
template <class D>
concept PlainDataset = requires(const D& data, std::int64_t index) {
  { data.size() } -> std::convertible_to<std::int64_t>;
  { data.get(index) } -> std::convertible_to<Sample>;
};
template <class D>
concept Dataset = DrawingDataset<D> || PlainDataset<D>;

// The samples of a data set, which is kept alive: for map_style(), subset(), split() and concat().
template <Dataset D>
SampleSource source(std::shared_ptr<D> dataset) {
  if (!dataset) return {};
  const auto size = static_cast<std::int64_t>(dataset->size());
  return {
      .size = size,
      .get = [data = std::shared_ptr<const D>(std::move(dataset))](std::int64_t index, RandomStream random) -> Sample {
        if constexpr (DrawingDataset<D>) {
          return data->get(index, random);
        } else {
          return data->get(index);
        }
      }};
}

template <Dataset D>
SampleSource source(D dataset) {
  return source(std::make_shared<D>(std::move(dataset)));
}

template <Dataset D>
std::shared_ptr<Loader> map_style(std::shared_ptr<D> dataset, MapStyleOptions options) {
  return map_style(source(std::move(dataset)), std::move(options));
}

template <Dataset D>
std::shared_ptr<Loader> map_style(D dataset, MapStyleOptions options) {
  return map_style(source(std::move(dataset)), std::move(options));
}

}  // namespace composer::data

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

// One sample: a few named tensors, without the dimension that counts samples. A single tensor is called "input".
class COMPOSER_EXPORT Sample : public Tensors {
 public:
  Sample() = default;
  Sample(std::initializer_list<Item> items) : Tensors(items) {}
  Sample(at::Tensor only) : Tensors("input", std::move(only)) {}
};

struct MapStyleOptions {
  std::int64_t batch_size = 0;             // required
  bool shuffle = true;                     // each epoch in another order, which depends on (seed, epoch) alone
  std::optional<std::uint64_t> seed = {};  // unset: the training run's; 17 in evaluation and without a trainer
  bool drop_last = false;                  // leaves out an epoch's last batch if it is smaller
  std::int64_t num_workers = 0;            // threads that make batches; 0: next() makes them
  std::int64_t prefetch_factor = 2;        // so many batches for each worker wait or are being made
  std::function<Batch(std::vector<Sample>)> collate = {};  // unset: stacks the tensors of each name
  bool pin_memory = false;  // gives batches in page-locked memory, which a GPU copies from without waiting; needs CUDA
};

// Samples by number. With workers, `get` and `collate` are called from several threads at once.
struct SampleSource {
  std::int64_t size = 0;
  // Draws from the stream it gets: that depends on (seed, epoch, index) alone.
  std::function<Sample(std::int64_t index, RandomStream random)> get = {};
};

// Batches of samples that a data set makes one by one. They are the same, in the same order, whatever the number of
// workers, and depend on their place alone: a resumed run reads nothing twice. libtorch's operators use one processor
// inside a worker. What get() or collate throws leaves the next() that wanted the batch, nested in a DataError with the
// sample, epoch and batch; the call after that gives the batch after that. The loader ends when the samples being made
// are done. Throws ConfigError for options that do not fit, DataError for data without samples.
COMPOSER_EXPORT std::shared_ptr<Loader> map_style(SampleSource source, MapStyleOptions options);

// Any type with `std::int64_t size() const` and `Sample get(std::int64_t index, RandomStream random) const`, or
// `get(index)`: const, because workers share it. The size is asked for once.
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

template <Dataset D>
std::shared_ptr<Loader> map_style(std::shared_ptr<D> dataset, MapStyleOptions options) {
  SampleSource source;
  if (dataset) {
    source.size = static_cast<std::int64_t>(dataset->size());
    source.get = [data = std::shared_ptr<const D>(std::move(dataset))](std::int64_t index,
                                                                       RandomStream random) -> Sample {
      if constexpr (DrawingDataset<D>) {
        return data->get(index, random);
      } else {
        return data->get(index);
      }
    };
  }
  return map_style(std::move(source), std::move(options));
}

template <Dataset D>
std::shared_ptr<Loader> map_style(D dataset, MapStyleOptions options) {
  return map_style(std::make_shared<D>(std::move(dataset)), std::move(options));
}

}  // namespace composer::data

#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/tensors.h"
#include "composer/data/loader.h"

namespace composer::data {

// float = (pixel / 255 - mean) / stddev, of one number each or of one per channel.
struct Normalize {
  std::vector<double> mean, stddev;
};

struct InMemoryOptions {
  std::int64_t batch_size = 0;        // required
  bool shuffle = true;                // each epoch in another order, which depends on (seed, epoch) alone
  std::optional<std::uint64_t> seed;  // unset: the training run's; 17 in evaluation and without a trainer
  bool drop_last = false;             // leaves out an epoch's last batch if it is smaller

  // Applied to one tensor while its batch is put together: crop_padding, flip, normalize, cutout. What is drawn for a
  // sample depends on (seed, epoch, sample) alone.
  std::string image = "input";
  std::optional<Normalize> normalize;  // of uint8 pixels, to float32
  bool flip = false;                   // mirrors half of the images
  std::int64_t crop_padding = 0;       // pads with so many rows and columns of 0, and cuts the old size out of that
  std::int64_t cutout = 0;             // a square of this side becomes 0; its centre is anywhere in the image
  bool channels_last = false;          // gives images [N, C, H, W] with the channels innermost in memory

  std::int64_t prefetch = 0;  // so many batches are made ahead, on a thread; docs/data.md says when that pays
  bool pin_memory = false;  // gives batches in page-locked memory, which a GPU copies from without waiting; needs CUDA
};

// Batches of data that is all in memory, in the order given or shuffled. The data is kept as it is (one copy is made if
// it is not contiguous, or channels_last is asked for), on whatever device it is; the batches are there too. The memory
// of a batch is used again once nobody holds its tensors or views of them. Batches that are neither shuffled nor
// transformed are views of the data and must not be modified in place: next() throws DataError after an operator has
// done that. Throws ConfigError for options that do not fit, DataError for data without samples or of different
// lengths.
COMPOSER_EXPORT std::shared_ptr<Loader> in_memory(Batch data, InMemoryOptions options);

}  // namespace composer::data

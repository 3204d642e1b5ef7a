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

// float = (pixel / 255 - mean) / stddev, with one number each or one per channel.
struct Normalize {
  std::vector<double> mean, stddev;
};

struct InMemoryOptions {
  std::int64_t batch_size = 0;  // required: number of samples in a batch, >= 1
  bool shuffle = true;          // a new order in each epoch, which depends only on (seed, epoch)
  // Seed of the order and of random transforms. Unset: the trainer's, or 17 in evaluation and without a trainer.
  std::optional<std::uint64_t> seed = {};
  bool drop_last = false;   // omits an epoch's last batch if it is smaller
  at::Tensor weights = {};  // [N]: draws samples with replacement, in proportion to these; undefined: each once
  std::int64_t samples_per_epoch = 0;  // with weights: number of samples that an epoch draws; 0: N

  // The tensor [N, C, H, W] that the following options transform, in the order crop, flip, normalize, cutout.
  std::string image = "input";
  std::optional<Normalize> normalize = {};  // converts uint8 pixels to float32: (pixel / 255 - mean) / stddev
  bool flip = false;                        // mirrors half of the images
  std::int64_t crop_padding = 0;  // pixels of padding with 0 on each side, before a random crop to the old size
  std::int64_t cutout = 0;        // side in pixels of a square at a random centre that is set to 0; 0: none
  bool channels_last = false;     // channels innermost in memory, as convolutions prefer; the shape stays

  std::int64_t prefetch = 0;  // number of batches that a background thread prepares ahead; 0: none
  bool pin_memory = false;    // batches in page-locked memory, so that copies to a GPU do not block; requires CUDA
};

// Returns a loader over tensors in memory, in the given order or shuffled. Shares the tensors, except for one copy if
// they are not contiguous or channels_last is set. Batches are on the data's device. A batch's memory is reused once no
// tensor or view refers to it. Batches that are neither shuffled nor transformed are views of the data and must not be
// modified in place: next() throws DataError after an operator has done that.
// Throws ConfigError for invalid options, DataError for data without samples or with tensors of different lengths.
// The caller may modify tensors that were not copied; later batches then have the new values.
COMPOSER_EXPORT std::shared_ptr<Loader> in_memory(Batch data, InMemoryOptions options);

}  // namespace composer::data

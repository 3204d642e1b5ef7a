#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"
#include "composer/data/loader.h"
#include "composer/data/map_style.h"
#include "composer/data/mds/mds_sample.h"
#include "composer/util/random.h"

namespace composer::data {

// Makes what a batch is made of. Called from several threads at once. Use `random` for random numbers: it depends only
// on (seed, epoch, sample).
using MdsTransform = std::function<Sample(const MdsSample& sample, RandomStream random)>;

struct StreamingOptions {
  std::filesystem::path local = {};  // required: the folder of index.json and its shards, or where they are kept
  std::string remote = {};           // s3://, https://, http:// or file:// URI, or a folder; empty: all is in `local`
  std::string split = {};            // a folder in both, such as "train"; empty: none

  std::vector<std::string> columns = {};  // columns of samples that no transform makes; empty: all
  MdsTransform transform = {};            // unset: the tensor() of each column, by its name
  DecodeImage decode_image = {};  // makes a tensor of a jpeg or png; unset: uint8 [3, H, W], RGB and turned upright

  std::string validate_hash = {};     // hash in index.json to compare shards with, such as "sha1"; empty: only sizes
  std::int64_t cache_limit = 0;       // bytes of shards in `local`; those unused for longest are deleted; 0: no limit
  bool keep_zip = false;              // keep compressed shards beside those that are decompressed
  std::int64_t download_threads = 2;  // shards that are fetched and decompressed at the same time
  std::int64_t download_retry = 2;    // how often a failed request is repeated
  double download_timeout = 60;       // seconds without data after which a request fails
};

// An MDS data set: shards of samples, which libcomposer's MdsWriter or mosaicml-streaming has written. Samples can be
// read in any order; a shard that is not in `local` is fetched when one of its samples is read. Several processes may
// share `local`. Copies are the same data set. Thread-safe.
class COMPOSER_EXPORT StreamingDataset {
 public:
  // Reads index.json, from `local` or else from `remote`. Throws ConfigError for invalid options, DataError for a
  // missing or damaged index, or a column with pickles, unless `columns` leaves it out.
  explicit StreamingDataset(StreamingOptions options);
  ~StreamingDataset();
  StreamingDataset(const StreamingDataset&);
  StreamingDataset& operator=(const StreamingDataset&);
  StreamingDataset(StreamingDataset&&) noexcept;
  StreamingDataset& operator=(StreamingDataset&&) noexcept;

  std::int64_t size() const;
  // The sample as transform makes it, or as tensors by the names of the columns.
  Sample get(std::int64_t index, RandomStream random = RandomStream(0)) const;
  // The sample as it is stored.
  MdsSample sample(std::int64_t index) const;

  class Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

struct StreamingLoaderOptions {
  std::int64_t batch_size = 0;                // required: samples of a batch, of all ranks together
  bool shuffle = true;                        // a new order in each epoch, which depends only on (seed, epoch)
  std::int64_t shuffle_block_size = 1 << 18;  // samples that are shuffled with each other
  std::int64_t num_canonical_nodes = 1;       // parts of a batch that come from shards of their own; divides batch_size
  std::optional<std::uint64_t> seed = {};     // unset: the trainer's seed; 17 in evaluation and without a trainer
  bool drop_last = false;                     // omit an epoch's last batch if it is smaller
  std::int64_t num_workers = 0;               // background threads that make batches; 0: next() makes them
  std::int64_t prefetch_factor = 2;           // number of batches per worker that are ready or being made
  // samples whose shards are fetched ahead; unset: 8 batches, or the larger shuffle_block_size if they are shuffled
  std::optional<std::int64_t> predownload = {};
  std::function<Batch(std::vector<Sample>)> collate = {};  // unset: stack the tensors of each name
  bool pin_memory = false;  // page-locked batches, so that copies to a GPU do not block the host; requires CUDA
};

// Returns a loader that reads a data set shard by shard: the samples of a batch come from a few shards, in an order
// that depends only on (seed, epoch), whatever the number of ranks and workers. The shards of the next samples are
// fetched meanwhile. Otherwise as map_style().
COMPOSER_EXPORT std::shared_ptr<Loader> streaming(const StreamingDataset& dataset, StreamingLoaderOptions options);

}  // namespace composer::data

#include "composer/data/for_rank.h"

#include <memory>
#include <utility>

#include "composer/core/error.h"
#include "composer/data/rank_slice.h"
#include "composer/data/seekable_loader.h"
#include "composer/data/shared_loader.h"

namespace composer::data {
namespace {

// Yields slices of a loader's batches. It seeks to each batch that it reads, because other slices may read the same
// loader.
class SlicedLoader final : public Loader {
 public:
  SlicedLoader(DataSpec spec, std::int64_t rank, std::int64_t world_size, std::int64_t shards)
      : spec_(std::move(spec)), loader_(spec_.dataloader), rank_(rank), world_size_(world_size), shards_(shards) {}

  void seek(std::int64_t epoch, std::int64_t batch) override {
    loader_.seek("sliced", epoch, batch);
    epoch_ = epoch;
    batch_ = batch;
  }
  std::optional<Batch> next() override {
    const std::int64_t batch = batch_++;  // if reading throws, the next call returns the following batch
    const std::optional<Batch> whole = loader_.read("sliced", epoch_, batch);
    if (whole) return slice_batch(*whole, spec_, rank_, world_size_, shards_);
    batch_ = batch;
    return std::nullopt;
  }
  std::optional<std::int64_t> num_batches() const override { return spec_.dataloader->num_batches(); }
  std::optional<std::int64_t> batch_size() const override {
    const std::optional<std::int64_t> all = spec_.dataloader->batch_size();
    return all ? std::optional(rank_slice(*all, rank_, world_size_, shards_).size()) : std::nullopt;
  }
  std::vector<std::int64_t> sample_indices(std::int64_t epoch, std::int64_t batch) const override {
    const std::vector<std::int64_t> all = spec_.dataloader->sample_indices(epoch, batch);
    const auto [begin, end] = rank_slice(static_cast<std::int64_t>(all.size()), rank_, world_size_, shards_);
    return {all.begin() + begin, all.begin() + end};
  }
  void set_default_seed(std::uint64_t seed) override { loader_.set_default_seed(seed); }

 private:
  DataSpec spec_;
  SharedLoader loader_;
  std::int64_t rank_, world_size_, shards_;
  std::int64_t epoch_ = 0, batch_ = 0;
};

}  // namespace

DataSpec for_rank(DataSpec spec, std::int64_t rank, std::int64_t world_size, std::int64_t shards) {
  if (!spec.dataloader) throw ConfigError("for_rank: the DataSpec has no loader");
  rank_slice(0, rank, world_size, shards);  // throws for an invalid rank or number of shards
  if (world_size == 1) return spec;
  if (dynamic_cast<const SlicedLoader*>(spec.dataloader.get()))
    throw ConfigError("for_rank: the loader is sliced already; pass the loader that it was made from");
  if (const auto* seekable = dynamic_cast<const detail::SeekableLoader*>(spec.dataloader.get()))
    spec.dataloader = seekable->for_rank(rank, world_size, shards);
  else
    spec.dataloader = std::make_shared<SlicedLoader>(spec, rank, world_size, shards);
  return spec;
}

}  // namespace composer::data

#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "composer/data/weighted_draw.h"
#include "composer/util/random.h"

namespace composer::data::detail {

// 0 to `samples` - 1 in an order of which all are equally likely.
std::vector<std::int64_t> shuffled(std::int64_t samples, RandomStream random);

struct SamplerOptions {
  const char* who = "";                      // for errors
  std::int64_t samples = 0, batch_size = 1;  // batch_size >= 1
  bool shuffle = true;
  std::optional<std::uint64_t> seed;
  bool drop_last = false;
  std::shared_ptr<const WeightedDraw> weights = {};   // draws an epoch's samples, if given
  std::int64_t samples_per_epoch = 0;                 // that weights draw; 0: as many as there are
  std::int64_t rank = 0, world_size = 1, shards = 0;  // span() is this rank's slice of each batch, as in rank_slice()
  // Changes the order of an epoch, in the same way each time.
  std::function<void(std::vector<std::int64_t>& order, std::uint64_t seed, std::int64_t epoch)> arrange = {};
  // Another order than the sampler's own: returns the samples at places [from, from + count) of the epoch. Thread-safe.
  using Part = std::vector<std::int64_t>(std::uint64_t seed, std::int64_t epoch, std::int64_t from, std::int64_t count);
  std::function<Part> part = {};
};

// Determines which samples are in which batch of which epoch. Thread-safe, except for set_default_seed().
class Sampler {
 public:
  using Order = std::vector<std::int64_t>;
  struct Span {
    std::int64_t from, count;
  };

  // Throws ConfigError, or DataError if there are no samples.
  explicit Sampler(SamplerOptions options);

  // Returns a sampler with the same order and the slices of a rank. Throws ConfigError if this sampler already has
  // slices.
  std::shared_ptr<Sampler> for_rank(std::int64_t rank, std::int64_t world_size, std::int64_t shards = 0) const;

  std::int64_t num_samples() const { return epoch_; }  // in an epoch
  std::int64_t num_batches() const { return batches_; }
  std::int64_t batch_size() const;  // of this rank
  bool is_sliced() const { return options_.world_size > 1; }
  // Whether each epoch has the samples 0, 1, 2... in this order.
  bool in_order() const { return !options_.shuffle && !options_.arrange && !options_.part; }
  bool repeats() const { return options_.weights != nullptr; }  // whether a sample may be in an epoch several times
  // Used if the options set no seed; initially 17. Do not call while other threads use the sampler.
  void set_default_seed(std::uint64_t seed);
  bool would_change(std::uint64_t default_seed) const { return !options_.seed && default_seed != default_seed_; }
  std::uint64_t seed() const { return options_.seed.value_or(default_seed_); }
  // Throws ConfigError for an invalid position; the one after the last batch is valid.
  void check(std::int64_t epoch, std::int64_t batch) const;
  // The part of the epoch's order that is this rank's slice of a batch. May be empty.
  Span span(std::int64_t batch) const;
  // The part of the epoch's order that a batch covers, over all ranks. Never empty.
  Span span_of_all(std::int64_t batch) const;
  // The samples of a part of the epoch's order.
  std::vector<std::int64_t> indices(std::int64_t epoch, Span span) const;
  // The order of an epoch's samples; nullptr means 0, 1, 2... Not with `part`. The last two requested epochs are
  // cached, because batches of the next epoch are prepared while the last ones of the current epoch are still being
  // made. Up to 16 epochs are cached while readers at different epochs request them in turn.
  std::shared_ptr<const Order> order(std::int64_t epoch) const;

 private:
  SamplerOptions options_;
  std::int64_t epoch_ = 0, batches_ = 0;  // number of an epoch's samples and batches
  std::uint64_t default_seed_ = 17;

  struct Known {
    std::int64_t epoch;
    std::shared_ptr<const Order> order;
  };
  Order new_order(std::int64_t epoch) const;
  void drop_beyond(std::size_t kept) const;

  mutable std::mutex mutex_;                   // guards the members below
  mutable std::vector<Known> known_;           // cached orders, most recently requested first
  mutable std::vector<std::int64_t> dropped_;  // epochs dropped from known_, latest last
  // Limit of known_; orders made since an order beyond the first two was reused.
  mutable std::size_t most_ = 2, since_use_ = 0;
};

}  // namespace composer::data::detail

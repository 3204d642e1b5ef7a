#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace composer::data::detail {

struct SamplerOptions {
  const char* who = "";  // for errors
  std::int64_t samples = 0, batch_size = 0;
  bool shuffle = true;
  std::optional<std::uint64_t> seed;
  bool drop_last = false;
};

// Which samples are in which batch of which epoch. May be asked from several threads at once.
class Sampler {
 public:
  using Order = std::vector<std::int64_t>;
  struct Span {
    std::int64_t from, count;
  };

  // Throws ConfigError, or DataError if there are no samples.
  explicit Sampler(SamplerOptions options);

  std::int64_t num_batches() const { return batches_; }
  std::int64_t batch_size() const { return options_.batch_size; }
  // In force if the options set no seed; before this is called, that is 17. Not while others use the sampler.
  void set_default_seed(std::uint64_t seed);
  bool would_change(std::uint64_t default_seed) const { return !options_.seed && default_seed != default_seed_; }
  std::uint64_t seed() const { return options_.seed.value_or(default_seed_); }
  // Throws ConfigError unless a loader can be positioned there; behind the last batch it can.
  void check(std::int64_t epoch, std::int64_t batch) const;
  // Where in the epoch's order a batch lies.
  Span span(std::int64_t batch) const;
  // The samples of an epoch in their order, nullptr if that is 0, 1, 2... The last two epochs that were asked for are
  // kept: batches of the next one are made while the last ones of the epoch before still are.
  std::shared_ptr<const Order> order(std::int64_t epoch) const;

 private:
  SamplerOptions options_;
  std::int64_t batches_ = 0;
  std::uint64_t default_seed_ = 17;

  struct Known {
    std::int64_t epoch = -1;
    std::shared_ptr<const Order> order;
  };
  mutable std::mutex mutex_;  // of what follows
  mutable Known last_, before_last_;
};

}  // namespace composer::data::detail

#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include <sys/types.h>

#include "composer/data/loader.h"
#include "composer/data/read_ahead.h"
#include "composer/data/sampler.h"

namespace composer::data::detail {

// A loader that makes each batch from its position alone: in next(), or ahead on background threads. Thread-safe:
// concurrent calls wait for each other.
class SeekableLoader final : public Loader {
 public:
  struct Ahead {
    std::int64_t threads = 0, depth = 0;  // threads 0: next() makes the batches
  };

  // Returns the function that makes the batches of this sampler; called once for each loader.
  using MakeFor = std::function<ReadAhead::Make(const std::shared_ptr<const Sampler>& sampler)>;

  // With threads, several batches may be made at once, but none after the destructor. The threads start with the first
  // next(). In a process forked after that, seek() and next() throw ConfigError.
  SeekableLoader(std::shared_ptr<Sampler> sampler, Ahead ahead, MakeFor make_for);
  ~SeekableLoader() override;
  SeekableLoader(const SeekableLoader&) = delete;
  SeekableLoader& operator=(const SeekableLoader&) = delete;

  // Returns another loader of the same data, which makes only the rank's slice of each batch.
  std::shared_ptr<Loader> for_rank(std::int64_t rank, std::int64_t world_size, std::int64_t shards) const;

  void set_default_seed(std::uint64_t seed) override;
  void seek(std::int64_t epoch, std::int64_t batch) override;
  std::optional<Batch> next() override;
  std::optional<std::int64_t> num_batches() const override { return sampler_->num_batches(); }
  std::optional<std::int64_t> batch_size() const override { return sampler_->batch_size(); }
  std::vector<std::int64_t> sample_indices(std::int64_t epoch, std::int64_t batch) const override;
  std::int64_t num_samples() const { return sampler_->num_samples(); }  // over all ranks
  bool in_order() const { return sampler_->in_order(); }

 private:
  bool is_other_process() const;
  void check_process() const;

  std::shared_ptr<Sampler> sampler_;
  Ahead ahead_;
  MakeFor make_for_;
  ReadAhead::Make make_;
  std::mutex mutex_;  // guards the members below
  std::int64_t epoch_ = 0, batch_ = 0;
  std::unique_ptr<ReadAhead> threads_;
  std::atomic<pid_t> process_ = 0;  // process of the threads; 0: not started
};

}  // namespace composer::data::detail

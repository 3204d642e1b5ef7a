#include "composer/data/seekable_loader.h"

#include <unistd.h>
#include <utility>

#include "composer/core/error.h"

namespace composer::data::detail {

SeekableLoader::SeekableLoader(std::shared_ptr<Sampler> sampler, Ahead ahead, MakeFor make_for)
    : sampler_(std::move(sampler)), ahead_(ahead), make_for_(std::move(make_for)), make_(make_for_(sampler_)) {}

// The new loader has a sampler of its own, because two readers may have different seeds.
std::shared_ptr<Loader> SeekableLoader::for_rank(std::int64_t rank, std::int64_t world_size,
                                                 std::int64_t shards) const {
  return std::make_shared<SeekableLoader>(sampler_->for_rank(rank, world_size, shards), ahead_, make_for_);
}

// In a forked process the threads do not exist, and mutexes that they held stay locked; so the object is leaked.
SeekableLoader::~SeekableLoader() {
  if (!is_other_process()) return;
  [[maybe_unused]] const ReadAhead* leaked = threads_.release();
}

bool SeekableLoader::is_other_process() const {
  const pid_t process = process_;
  return process != 0 && process != ::getpid();
}

void SeekableLoader::check_process() const {
  if (is_other_process())
    throw ConfigError(
        "loader: was read before a fork(), so its background threads do not exist in this process; create ",
        "a new loader here");
}

void SeekableLoader::set_default_seed(std::uint64_t seed) {
  check_process();
  const std::lock_guard lock(mutex_);
  if (!sampler_->would_change(seed)) return;
  threads_.reset();  // the threads make batches with the old seed, and read it
  sampler_->set_default_seed(seed);
}

std::vector<std::int64_t> SeekableLoader::sample_indices(std::int64_t epoch, std::int64_t batch) const {
  sampler_->check(epoch, batch);
  return sampler_->indices(epoch, sampler_->span(batch));
}

void SeekableLoader::seek(std::int64_t epoch, std::int64_t batch) {
  sampler_->check(epoch, batch);
  check_process();
  const std::lock_guard lock(mutex_);
  if (threads_ && (epoch != epoch_ || batch != batch_)) threads_->seek({epoch, batch});
  epoch_ = epoch;
  batch_ = batch;
}

std::optional<Batch> SeekableLoader::next() {
  check_process();
  const std::lock_guard lock(mutex_);
  if (batch_ == sampler_->num_batches()) return std::nullopt;
  if (ahead_.threads > 0 && !threads_) {
    threads_ = std::make_unique<ReadAhead>(ahead_.threads, ahead_.depth, sampler_->num_batches(),
                                           ReadAhead::Position{epoch_, batch_}, make_);
    process_ = ::getpid();
  }
  const std::int64_t batch = batch_++;  // if making it throws, the next call returns the following batch
  return threads_ ? threads_->next() : make_(epoch_, batch, StillWanted());
}

}  // namespace composer::data::detail

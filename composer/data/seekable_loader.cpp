#include "composer/data/seekable_loader.h"

#include <utility>

namespace composer::data::detail {

SeekableLoader::SeekableLoader(std::shared_ptr<Sampler> sampler, Ahead ahead, ReadAhead::Make make)
    : sampler_(std::move(sampler)), ahead_(ahead), make_(std::move(make)) {}

void SeekableLoader::set_default_seed(std::uint64_t seed) {
  if (!sampler_->would_change(seed)) return;
  threads_.reset();  // they make batches of the seed before, and read it
  sampler_->set_default_seed(seed);
}

void SeekableLoader::seek(std::int64_t epoch, std::int64_t batch) {
  sampler_->check(epoch, batch);
  if (threads_ && (epoch != epoch_ || batch != batch_)) threads_->seek({epoch, batch});
  epoch_ = epoch;
  batch_ = batch;
}

std::optional<Batch> SeekableLoader::next() {
  if (batch_ == sampler_->num_batches()) return std::nullopt;
  if (ahead_.threads > 0 && !threads_)
    threads_.emplace(ahead_.threads, ahead_.depth, sampler_->num_batches(), ReadAhead::Place{epoch_, batch_}, make_);
  const std::int64_t batch = batch_++;  // an error is this batch's; the next call gives the next one
  return threads_ ? threads_->next() : make_(epoch_, batch, StillWanted());
}

}  // namespace composer::data::detail

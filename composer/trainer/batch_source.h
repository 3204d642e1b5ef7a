#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "composer/core/tensors.h"
#include "composer/step/feed.h"

namespace composer {

// The batches of one fit: those of a loader, which is placed where training is, or those that the caller gives.
class BatchSource {
 public:
  explicit BatchSource(Feed feed) : feed_(std::move(feed)) {}
  ~BatchSource() { feed_.drop_staged(); }
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  bool has_loader() const { return static_cast<bool>(feed_); }
  const Feed& feed() const { return feed_; }
  // Batches an epoch; unset: unknown, or there is no loader whose epochs could end.
  std::optional<std::int64_t> epoch_length() const { return has_loader() ? feed_.num_batches() : std::nullopt; }

  void give(Batch batch) { given_ = std::move(batch); }  // comes instead of the loader's next
  bool has_given() const { return given_.has_value(); }
  void take_back() { given_.reset(); }

  // The next one, transformed and counted; unset: the epoch is over. `release` is called as soon as it is sure that
  // there is one: it can have the memory of the last. Throws DataError for an epoch without a batch.
  std::optional<Batch> next(std::int64_t epoch, std::int64_t batch, const std::function<void()>& release);
  // Begins to copy the one after that, if the feed copies ahead.
  void stage_next();
  void count_nothing() { feed_.count_nothing(); }  // the next batch has no samples
  void lose_place() { placed_ = false; }           // the loader went elsewhere
  void lose_place_of(const Loader* other) { placed_ = placed_ && feed_.loader() != other; }

 private:
  Feed feed_;
  bool placed_ = false;  // the loader stands where feed_ has left it
  std::optional<Batch> given_;
};

}  // namespace composer

#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "composer/core/tensors.h"
#include "composer/step/feed.h"

namespace composer {

struct State;
class Ranks;

// The batches of one fit: those of a loader, which is moved to the position of training, or those that the caller
// gives.
class BatchSource {
 public:
  explicit BatchSource(Feed feed) : feed_(std::move(feed)) {}
  // `longest` is the length in batches of the longest epoch of any rank, where each rank has its own loader: an epoch
  // then lasts that long on all ranks. Unset: the length is unknown.
  BatchSource(Feed feed, const Ranks& ranks, std::optional<std::int64_t> longest);
  ~BatchSource() { feed_.drop_staged(); }
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  bool has_loader() const { return static_cast<bool>(feed_); }
  const Feed& feed() const { return feed_; }
  // Batches per epoch; unset: the length is unknown, or there is no loader whose epochs could end.
  std::optional<std::int64_t> epoch_length() const { return others_ ? longest_ : own_length(); }

  void give(Batch batch) { given_ = std::move(batch); }  // takes the place of the loader's next batch
  bool has_given() const { return given_.has_value(); }
  void take_back() { given_.reset(); }

  // Sets state.batch to the next batch of this epoch. False: the epoch is over, on all ranks. A rank that has run out
  // of batches before the others gets a batch without samples. `release` is called as in next(), at the point where the
  // state drops the previous batch.
  bool read(State& state, std::int64_t epoch, const std::function<void()>& release);
  // The next batch of this rank, transformed and counted; unset: the epoch of this rank is over. `release` is called as
  // soon as it is certain that there is a next batch, so that its memory can replace that of the previous one. Throws
  // DataError for an epoch without a batch.
  std::optional<Batch> next(std::int64_t epoch, std::int64_t batch, const std::function<void()>& release);
  // Begins to copy the batch after the current one, if the feed copies ahead.
  void stage_next();
  void lose_place() { placed_ = false; }  // the loader was moved to another position
  void lose_place_of(const Loader* other) { placed_ = placed_ && feed_.loader() != other; }

 private:
  std::optional<std::int64_t> own_length() const { return has_loader() ? feed_.num_batches() : std::nullopt; }
  std::optional<Batch> next_of_ranks(State& state, std::int64_t epoch, const std::function<void()>& release);

  Feed feed_;
  const Ranks* others_ = nullptr;        // set if each rank has its own loader
  std::optional<std::int64_t> longest_;  // the longest epoch of these loaders, in batches
  bool has_run_out_ = false;             // whether this rank has run out of batches in this epoch
  bool placed_ = false;                  // whether the loader is at the position where feed_ left it
  std::optional<Batch> given_;
};

}  // namespace composer

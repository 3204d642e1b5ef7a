#pragma once
#include <cstdint>
#include <functional>
#include <optional>

#include "composer/core/tensors.h"
#include "composer/step/feed.h"

namespace composer {

struct State;
class Ranks;

// The batches of one fit: those of a loader, which is placed where training is, or those that the caller gives.
class BatchSource {
 public:
  explicit BatchSource(Feed feed) : feed_(std::move(feed)) {}
  // Where each rank has a loader of its own, an epoch lasts as long as the longest of them: `longest` in batches;
  // unset: unknown.
  BatchSource(Feed feed, const Ranks& ranks, std::optional<std::int64_t> longest);
  ~BatchSource() { feed_.drop_staged(); }
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  bool has_loader() const { return static_cast<bool>(feed_); }
  const Feed& feed() const { return feed_; }
  // Batches an epoch; unset: unknown, or there is no loader whose epochs could end.
  std::optional<std::int64_t> epoch_length() const { return others_ ? longest_ : own_length(); }

  void give(Batch batch) { given_ = std::move(batch); }  // comes instead of the loader's next
  bool has_given() const { return given_.has_value(); }
  void take_back() { given_.reset(); }

  // state.batch becomes the next one of this epoch of the loader; false: the epoch is over, on all ranks. Those that
  // have run out of batches before train none meanwhile: theirs has no samples. `release` as in next(), where the state
  // lets go of the last.
  bool read(State& state, std::int64_t epoch, const std::function<void()>& release);
  // The next one of this rank, transformed and counted; unset: its epoch is over. `release` is called as soon as it is
  // sure that there is one: it can have the memory of the last. Throws DataError for an epoch without a batch.
  std::optional<Batch> next(std::int64_t epoch, std::int64_t batch, const std::function<void()>& release);
  // Begins to copy the one after that, if the feed copies ahead.
  void stage_next();
  void lose_place() { placed_ = false; }  // the loader went elsewhere
  void lose_place_of(const Loader* other) { placed_ = placed_ && feed_.loader() != other; }

 private:
  std::optional<std::int64_t> own_length() const { return has_loader() ? feed_.num_batches() : std::nullopt; }
  std::optional<Batch> next_of_ranks(State& state, std::int64_t epoch, const std::function<void()>& release);

  Feed feed_;
  const Ranks* others_ = nullptr;        // if each has a loader of its own
  std::optional<std::int64_t> longest_;  // of their epochs
  bool has_run_out_ = false;             // this rank, in this epoch
  bool placed_ = false;                  // the loader stands where feed_ has left it
  std::optional<Batch> given_;
};

}  // namespace composer

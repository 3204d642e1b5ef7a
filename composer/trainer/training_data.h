#pragma once
#include <cstdint>
#include <optional>

#include "composer/step/feed.h"

namespace composer {

struct FitOptions;
struct State;
struct TrainerOptions;
class Ranks;

// The loader that a trainer's fits read: that of its options, until a fit is given another.
class TrainingData {
 public:
  void begin(const TrainerOptions& options, const Ranks& ranks, State& state);
  // From now on; empty: the caller gives batches.
  void use(const Feed& feed, const TrainerOptions& options, const Ranks& ranks, State& state);

  const Feed& feed() const { return feed_; }
  // What a fit would use. A subset is of one fit; the trainer's own is of the loader that its options name.
  Feed of_fit(const FitOptions& fit, const TrainerOptions& options, const Ranks& ranks) const;
  // The longest epoch of any rank, in batches, where each has a loader of its own; unset: unknown.
  const std::optional<std::int64_t>& longest_epoch() const { return longest_epoch_; }

 private:
  Feed feed_;
  const Loader* own_ = nullptr;  // of the options
  std::optional<std::int64_t> longest_epoch_;
};

}  // namespace composer

#pragma once
#include <cstdint>
#include <optional>

#include "composer/step/feed.h"

namespace composer {

struct FitOptions;
struct State;
struct TrainerOptions;
class BatchSource;
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
  // In batches; unset: unknown, or no epoch ends.
  std::optional<std::int64_t> epoch_length(const BatchSource& source, const Ranks& ranks) const;

 private:
  Feed feed_;
  const Loader* own_ = nullptr;               // of the options
  std::optional<std::int64_t> joint_length_;  // of its epochs, where ranks have loaders of their own
};

}  // namespace composer

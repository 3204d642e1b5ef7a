#pragma once
#include <cstdint>
#include <optional>

#include "composer/core/plugins.h"
#include "composer/data/data_spec.h"
#include "composer/step/feed.h"

namespace composer {

struct FitOptions;
struct State;
struct TrainerOptions;
class Ranks;

// Adds the loader to the callbacks if it is one, so that checkpoints contain its state. Does nothing if it is there, or
// in another trainer that is open, whose checkpoints contain it.
void add_loader(const AnyDataSpec& data, Callbacks& callbacks);
// Checks that the loader of a fit, if it is a callback, is one of a trainer.
void check_is_saved(const AnyDataSpec& data);

// The loader that a trainer's fits read: the loader in its options, until a fit is given another one.
class TrainingData {
 public:
  void begin(const TrainerOptions& options, const Ranks& ranks, State& state);
  // Uses this loader for all later fits. Empty: the caller gives batches.
  void use(const Feed& feed, const TrainerOptions& options, const Ranks& ranks, State& state);

  const Feed& feed() const { return feed_; }
  // The loader that a fit would use. A subset in FitOptions is for that fit only; the trainer's subset belongs to the
  // loader in its options.
  Feed of_fit(const FitOptions& fit, const TrainerOptions& options, const Ranks& ranks) const;
  // The longest epoch of any rank, in batches, if each rank has its own loader; unset: unknown.
  const std::optional<std::int64_t>& longest_epoch() const { return longest_epoch_; }

 private:
  Feed feed_;
  const Loader* own_ = nullptr;  // the loader in the options
  std::optional<std::int64_t> longest_epoch_;
};

}  // namespace composer

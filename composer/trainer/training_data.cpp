#include "composer/trainer/training_data.h"

#include <algorithm>
#include <memory>
#include <typeinfo>
#include <utility>

#include "composer/core/engine.h"
#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/data/replay_buffer.h"
#include "composer/trainer/ranks.h"
#include "composer/trainer/trainer.h"

namespace composer {

void add_loader(const AnyDataSpec& data, Callbacks& callbacks) {
  const auto loader = std::dynamic_pointer_cast<Callback>(data.dataloader);
  if (!loader || Engine::is_in_use(*loader) || dynamic_cast<const LoggerDestination*>(loader.get())) return;
  if (std::ranges::any_of(callbacks.list(), [&](const auto& plugin) { return plugin.object == loader; })) return;
  // By its class, so that it listens to its own events only.
  if (auto replay = std::dynamic_pointer_cast<data::ReplayBuffer>(data.dataloader))
    callbacks.add(std::move(replay));
  else
    callbacks.add(loader);
}

void check_is_saved(const AnyDataSpec& data) {
  const auto* loader = dynamic_cast<const Callback*>(data.dataloader.get());
  if (!loader || Engine::is_in_use(*loader)) return;
  throw ConfigError("train_dataloader: this ", class_name(typeid(*loader)),
                    " is a callback as well, and a fit adds none, ",
                    "so it would not be saved; give it to the Trainer's options, as train_dataloader or in callbacks");
}

void TrainingData::begin(const TrainerOptions& options, const Ranks& ranks, State& state) {
  if (!options.train_dataloader) return;
  use(ranks.feed(options.train_dataloader, options.train_dataloader_label, options.train_subset_num_batches), options,
      ranks, state);
  own_ = feed_.loader();
}

void TrainingData::use(const Feed& feed, const TrainerOptions& options, const Ranks& ranks, State& state) {
  feed_ = feed;
  if (feed_) feed_.set_default_seed(state.seed);
  if (options.copy_ahead && !state.device.is_cpu()) feed_.copy_ahead(copies_on_side_stream(state.device));
  state.has_dataloader = true;
  state.dataloader_label = feed ? feed.label() : options.train_dataloader_label;
  if (ranks.have_own_loaders()) longest_epoch_ = ranks.longest(feed.num_batches());
  state.dataloader_len = ranks.have_own_loaders() ? longest_epoch_ : feed.num_batches();
}

Feed TrainingData::of_fit(const FitOptions& fit, const TrainerOptions& options, const Ranks& ranks) const {
  if (fit.train_dataloader)
    return ranks.feed(fit.train_dataloader, fit.train_dataloader_label, fit.train_subset_num_batches.value_or(-1));
  if (!feed_) return feed_;
  const bool is_own = feed_.loader() == own_;
  const std::int64_t subset = fit.train_subset_num_batches.value_or(is_own ? options.train_subset_num_batches : -1);
  return subset == feed_.subset() ? feed_ : feed_.with_subset(subset);
}

}  // namespace composer

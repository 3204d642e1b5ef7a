#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "composer/data/data_spec.h"
#include "composer/data/shared_loader.h"
#include "composer/step/batch_rules.h"
#include "composer/step/stage.h"

namespace composer {

// Throws ConfigError unless a loader of this label can be cut to so many batches.
void check_subset(const std::string& label, std::int64_t subset);

// A DataSpec that is being read: its batches transformed and counted, an epoch no longer than the subset asked for.
class Feed {
 public:
  Feed() = default;
  // `subset` batches an epoch at most; -1: all. Warns if the loader has fewer.
  Feed(AnyDataSpec spec, std::string label, std::int64_t subset);

  Feed with_subset(std::int64_t subset) const {
    Feed feed(rules_.spec(), label(), subset);
    feed.batch_size_ = batch_size_;
    return feed;
  }

  explicit operator bool() const { return loader() != nullptr; }
  const std::string& label() const { return rules_.label(); }
  // Of the epoch that seek() went to; unset: unknown.
  std::optional<std::int64_t> num_batches() const { return num_batches_; }
  // Samples of a batch, of all ranks; unset: unknown.
  std::optional<std::int64_t> batch_size() const {
    return batch_size_ ? batch_size_ : loader() ? loader()->batch_size() : std::nullopt;
  }
  std::optional<std::int64_t> num_samples() const;  // of the loader's data set; unset: unknown
  void set_batch_size(std::optional<std::int64_t> size) { batch_size_ = size; }  // where the loader has a part of it
  const Loader* loader() const { return rules_.spec().dataloader.get(); }
  std::int64_t subset() const { return subset_; }  // as it was asked for
  // To have while it is read. Throws ConfigError if a trainer on another thread reads the same loader.
  data::LoaderLease lease() const { return {loader_, label()}; }

  void set_default_seed(std::uint64_t seed) { loader_.set_default_seed(seed); }
  void seek(std::int64_t epoch, std::int64_t batch);
  std::optional<Batch> next();  // nullopt: the epoch is over
  bool is_at(std::int64_t epoch, std::int64_t batch) const { return epoch_ == epoch && next_ == batch; }
  // From now on stage_next() keeps a batch ahead. Not with batch_transforms, which may draw random numbers.
  void copy_ahead(StartCopy start);
  void stage_next();          // takes the next batch from the loader, for next() to give; without copy_ahead(): nothing
  void drop_staged();         // the loader then stands one batch further: seek() comes next
  void forget_batch();        // the last batch is not asked for on the device any more
  bool sure_of_next() const;  // the loader knows its length, and this is not the end
  void prepare(Batch& batch);  // transforms and counts a batch that came from elsewhere
  void count_nothing() { samples_ = tokens_ = elements_ = 0; }
  std::int64_t samples() const { return samples_; }  // of the last batch
  std::vector<std::int64_t> sample_indices() const;  // likewise; empty: unknown
  std::int64_t tokens() const { return tokens_; }
  // Of the last batch as algorithms have left it: they may have cut some off.
  std::int64_t tokens_left(const Batch& batch) const;

  const BatchRules& rules() const { return rules_; }
  void to_device(Batch& microbatch, at::Device device) const;  // and the microbatch transforms

 private:
  std::optional<std::int64_t> length() const;

  BatchRules rules_;
  data::SharedLoader loader_;  // that of the DataSpec
  std::int64_t subset_ = -1;
  std::optional<std::int64_t> batch_size_;
  std::optional<std::int64_t> num_batches_;
  std::shared_ptr<Stage> stage_;  // of copies of this too: the loader is one
  bool warned_ = false;           // of an epoch that was shorter than the loader says
  std::int64_t epoch_ = 0;
  std::int64_t next_ = 0;  // batch of the epoch
  std::int64_t samples_ = 0, tokens_ = 0;
  std::int64_t elements_ = 0;  // of all its tensors
};

}  // namespace composer

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
#include "composer/step/copy_ahead.h"

namespace composer {

// Throws ConfigError if the label is empty or `subset` is no valid number of batches: >= 1, or -1 for all.
void check_subset(const std::string& label, std::int64_t subset);

// Reads the batches of a DataSpec, transforms and counts them. An epoch has at most `subset` batches.
class Feed {
 public:
  Feed() = default;
  // `subset`: the largest number of batches per epoch; -1: all. Warns if the loader has fewer.
  Feed(AnyDataSpec spec, std::string label, std::int64_t subset);

  Feed with_subset(std::int64_t subset) const {
    Feed feed(rules_.spec(), label(), subset);
    feed.batch_size_ = batch_size_;
    return feed;
  }

  explicit operator bool() const { return loader() != nullptr; }
  const std::string& label() const { return rules_.label(); }
  // The number of batches in the current epoch, up to the subset; unset: unknown.
  std::optional<std::int64_t> num_batches() const { return num_batches_; }
  // The number of samples in a batch over all ranks; unset: unknown.
  std::optional<std::int64_t> batch_size() const {
    return batch_size_ ? batch_size_ : loader() ? loader()->batch_size() : std::nullopt;
  }
  std::optional<std::int64_t> num_samples() const;  // in the loader's data set; unset: unknown
  // For a loader that gives this rank a part of the batch.
  void set_batch_size(std::optional<std::int64_t> size) { batch_size_ = size; }
  const Loader* loader() const { return rules_.spec().dataloader.get(); }
  std::int64_t subset() const { return subset_; }  // as given; -1: all
  // To be held while the loader is read. Throws ConfigError if a trainer on another thread reads the same loader.
  data::LoaderLease lease() const { return {loader_, label()}; }

  void set_default_seed(std::uint64_t seed) { loader_.set_default_seed(seed); }
  void seek(std::int64_t epoch, std::int64_t batch);
  std::optional<Batch> next();  // nullopt: the epoch is over
  bool is_at(std::int64_t epoch, std::int64_t batch) const { return epoch_ == epoch && next_ == batch; }
  // From now on stage_next() keeps one batch ahead. Has no effect with batch_transforms, which may draw random numbers.
  void copy_ahead(StartCopy start);
  void stage_next();    // reads the next batch ahead, for next() to return; does nothing without copy_ahead()
  void drop_staged();   // afterwards the loader is one batch further, so call seek() next
  void forget_batch();  // the copies of the last batch on the device are no longer needed
  // Whether next() certainly has another batch: the loader knows its length, and this is not the end.
  bool sure_of_next() const;
  void prepare(Batch& batch);  // transforms and counts a batch from another source
  void count_nothing() { samples_ = tokens_ = elements_ = 0; }
  std::int64_t samples() const { return samples_; }  // in the last batch
  std::vector<std::int64_t> sample_indices() const;  // of the last batch; empty: unknown
  std::int64_t tokens() const { return tokens_; }
  // The tokens of the last batch as algorithms have left it: they may have removed some.
  std::int64_t tokens_left(const Batch& batch) const;

  const BatchRules& rules() const { return rules_; }
  void to_device(Batch& microbatch, at::Device device) const;  // also applies the microbatch transforms

 private:
  std::optional<std::int64_t> length() const;

  BatchRules rules_;
  data::SharedLoader loader_;  // the loader of the DataSpec
  std::int64_t subset_ = -1;
  std::optional<std::int64_t> batch_size_;
  std::optional<std::int64_t> num_batches_;
  std::shared_ptr<CopyAhead> copy_ahead_;  // shared with copies of this Feed, because they read the same loader
  bool warned_ = false;                    // whether it has warned about an epoch that was shorter than the loader says
  std::int64_t epoch_ = 0;
  std::int64_t next_ = 0;  // index of the next batch in the epoch
  std::int64_t samples_ = 0, tokens_ = 0;
  std::int64_t elements_ = 0;  // of all tensors of the last batch
};

}  // namespace composer

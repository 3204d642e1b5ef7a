#include "composer/step/feed.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/data/seekable_loader.h"
#include "composer/util/to_device.h"

namespace composer {
namespace {

std::int64_t elements_of(const Batch& batch) {
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : batch) elements += tensor.defined() ? tensor.numel() : 0;
  return elements;
}

}  // namespace

void check_subset(const std::string& label, std::int64_t subset) {
  if (label.empty()) throw ConfigError("a loader was given with an empty label");
  if (subset < -1 || subset == 0)
    throw ConfigError(label, " loader: the number of batches an epoch must be >= 1, or -1 for all, got ", subset);
}

Feed::Feed(AnyDataSpec spec, std::string label, std::int64_t subset)
    : rules_(std::move(spec), std::move(label)), loader_(rules_.spec().dataloader), subset_(subset) {
  check_subset(this->label(), subset);
  const std::optional<std::int64_t> all = loader()->num_batches();
  if (all && *all < subset)
    warn(join(this->label(), " loader: has ", *all, " batches, so a subset of ", subset, " is all of them"));
  num_batches_ = length();
}

std::optional<std::int64_t> Feed::num_samples() const {
  const auto* ours = dynamic_cast<const data::detail::SeekableLoader*>(loader());
  return ours ? std::optional(ours->num_samples()) : std::nullopt;
}

std::optional<std::int64_t> Feed::length() const {
  const std::optional<std::int64_t> all = loader()->num_batches();
  if (subset_ == -1) return all;
  return all ? std::min(*all, subset_) : subset_;
}

void Feed::seek(std::int64_t epoch, std::int64_t batch) {
  drop_staged();
  loader_.seek(label(), epoch, batch);
  epoch_ = epoch;
  num_batches_ = length();  // the number of batches may differ by epoch, as with buckets
  next_ = batch;
}

std::optional<Batch> Feed::next() {
  if (num_batches_ && next_ >= *num_batches_) return std::nullopt;
  std::optional<Batch> batch =
      copy_ahead_ && copy_ahead_->full() ? copy_ahead_->take() : loader_.read(label(), epoch_, next_);
  if (!batch) {
    const std::optional<std::int64_t> promised = loader()->num_batches();
    if (promised && next_ < *promised && !std::exchange(warned_, true))
      warn(join(label(), " loader: an epoch ended after ", next_, " batches; num_batches() is ", *promised,
                ", which schedules and intervals use"));
    return std::nullopt;
  }
  ++next_;
  prepare(*batch);
  return batch;
}

void Feed::copy_ahead(StartCopy start) {
  if (loader() && !rules_.has_batch_transforms()) copy_ahead_ = std::make_shared<CopyAhead>(std::move(start));
}

void Feed::stage_next() {
  if (!copy_ahead_ || (num_batches_ && next_ >= *num_batches_)) return;
  copy_ahead_->put([this] { return loader_.read(label(), epoch_, next_); });
}

void Feed::drop_staged() {
  if (copy_ahead_) copy_ahead_->drop();
}

void Feed::forget_batch() {
  if (copy_ahead_) copy_ahead_->forget_current();
}

bool Feed::sure_of_next() const {
  const std::optional<std::int64_t> all = loader()->num_batches();
  return all && next_ < std::min(*all, num_batches_.value_or(*all));
}

void Feed::prepare(Batch& batch) {
  rules_.transform(batch);
  samples_ = rules_.count_samples(batch);
  tokens_ = rules_.count_tokens(batch).total;
  elements_ = elements_of(batch);
}

std::int64_t Feed::tokens_left(const Batch& batch) const {
  return elements_of(batch) == elements_ ? tokens_ : rules_.count_tokens(batch).total;
}

std::vector<std::int64_t> Feed::sample_indices() const {
  if (!loader() || next_ == 0) return {};
  std::vector<std::int64_t> indices = loader()->sample_indices(epoch_, next_ - 1);
  if (static_cast<std::int64_t>(indices.size()) != samples_) indices.clear();  // the number of samples was changed
  return indices;
}

void Feed::to_device(Batch& microbatch, at::Device device) const {
  for (auto& [name, tensor] : microbatch)
    if (tensor.device() != device) {
      at::Tensor copy = copy_ahead_ ? copy_ahead_->copy_of(tensor) : at::Tensor();
      tensor = copy.defined() ? std::move(copy) : util::to_device(tensor, device);
    }
  rules_.transform_microbatch(microbatch);
}

}  // namespace composer

#include "composer/data/join_batches.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>

#include "composer/core/error.h"

namespace composer::data {
namespace {

at::Tensor joined(const std::string& name, const std::vector<at::Tensor>& parts) {
  const at::Tensor& first = parts.front();
  const auto kind = [](const at::Tensor& tensor) { return join(tensor.scalar_type(), ' ', tensor.sizes()); };
  for (const at::Tensor& part : parts)
    if (part.scalar_type() != first.scalar_type() || part.dim() != first.dim() ||
        (first.dim() > 0 ? part.sizes().slice(1) != first.sizes().slice(1) : !at::equal(part, first)))
      throw DataError("join_batches: \"", name, "\" is ", kind(first), " in one batch and ", kind(part),
                      " in another, which cannot be joined",
                      first.dim() > 0 ? "; pad them to one shape" : ": it is one number, and must be the same in both");
  return first.dim() > 0 ? at::cat(parts) : first;
}

class JoinedBatches final : public Loader {
 public:
  JoinedBatches(std::shared_ptr<Loader> loader, std::int64_t count) : loader_(std::move(loader)), count_(count) {}

  void seek(std::int64_t epoch, std::int64_t batch) override {
    const std::optional<std::int64_t> batches = loader_->num_batches();
    loader_->seek(epoch, batches && batch <= *num_batches() ? std::min(batch * count_, *batches) : batch * count_);
    epoch_ = epoch;
    batch_ = batch;
    at_end_ = is_between_ = false;
  }

  std::optional<Batch> next() override {
    if (is_between_) seek(epoch_, batch_);
    std::vector<Batch> parts;
    ++batch_;  // if reading throws, the next call returns the following batch
    is_between_ = true;
    while (!at_end_ && std::ssize(parts) < count_) {
      if (std::optional<Batch> part = loader_->next())
        parts.push_back(std::move(*part));
      else
        at_end_ = true;
    }
    is_between_ = false;
    if (parts.empty()) {
      --batch_;
      return std::nullopt;
    }
    if (parts.size() == 1) return std::move(parts.front());
    Batch all;
    for (const auto& [name, first] : parts.front()) {
      std::vector<at::Tensor> tensors;
      for (const Batch& part : parts) {
        if (part.size() != parts.front().size() || !part.contains(name))
          throw DataError("join_batches: the batches do not have the same tensors: \"", name,
                          "\" or another one is missing in one of them");
        tensors.push_back(part[name]);
      }
      all.set(name, joined(name, tensors));
    }
    return all;
  }

  std::optional<std::int64_t> num_batches() const override {
    const std::optional<std::int64_t> batches = loader_->num_batches();
    return batches ? std::optional((*batches + count_ - 1) / count_) : std::nullopt;
  }
  std::optional<std::int64_t> batch_size() const override {
    const std::optional<std::int64_t> samples = loader_->batch_size();
    return samples ? std::optional(*samples * count_) : std::nullopt;
  }
  std::vector<std::int64_t> sample_indices(std::int64_t epoch, std::int64_t batch) const override {
    std::vector<std::int64_t> all;
    const std::optional<std::int64_t> batches = loader_->num_batches();
    for (std::int64_t i = batch * count_; i < (batch + 1) * count_ && (!batches || i < *batches); ++i)
      for (const std::int64_t index : loader_->sample_indices(epoch, i)) all.push_back(index);
    return all;
  }
  void set_default_seed(std::uint64_t seed) override { loader_->set_default_seed(seed); }

 private:
  std::shared_ptr<Loader> loader_;
  std::int64_t count_;
  std::int64_t epoch_ = 0, batch_ = 0;  // of the next batch
  bool is_between_ = false;             // an error of the loader has left it within a batch
  bool at_end_ = false;                 // the epoch's last batch was read, and nobody has asked for a position since
};

}  // namespace

std::shared_ptr<Loader> join_batches(std::shared_ptr<Loader> loader, std::int64_t count) {
  if (!loader) throw ConfigError("join_batches: a loader is required");
  if (count < 1) throw ConfigError("join_batches: the count must be >= 1, got ", count);
  return std::make_shared<JoinedBatches>(std::move(loader), count);
}

}  // namespace composer::data

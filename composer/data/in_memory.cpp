#include "composer/data/in_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/MemoryFormat.h>

#include "composer/core/error.h"
#include "composer/data/data_spec.h"
#include "composer/data/image_pass.h"
#include "composer/util/random.h"

namespace composer::data {
namespace {

using detail::ImagePass;

constexpr std::int64_t kBytesPerThread = 1 << 19;  // below this a second thread costs more than it brings
constexpr std::uint64_t kOrder = 0;

// Shuffled samples are where the processor does not expect them: asking for the next one halves the time of a batch.
void prefetch(const char* data, std::int64_t bytes) {
  for (std::int64_t i = 0; i < std::min<std::int64_t>(bytes, 4096); i += 64) __builtin_prefetch(data + i);
}

class InMemory final : public Loader {
 public:
  InMemory(Batch data, InMemoryOptions options);

  void seek(std::int64_t epoch, std::int64_t batch) override;
  std::optional<Batch> next() override;
  std::optional<std::int64_t> num_batches() const override { return batches_; }
  std::optional<std::int64_t> batch_size() const override { return options_.batch_size; }

 private:
  void lay_out();
  void prepare_epoch();
  void shuffle();
  at::Tensor gather(const at::Tensor& source, const ImagePass* pass, std::int64_t from, std::int64_t count) const;
  at::Tensor gather_on_device(const at::Tensor& source, const ImagePass* pass, std::int64_t from,
                              std::int64_t count) const;
  std::int64_t sample_at(std::int64_t place) const {
    return order_.empty() ? place : order_[static_cast<std::size_t>(place)];
  }

  Batch data_;
  InMemoryOptions options_;
  ImagePass pass_;
  std::int64_t samples_ = 0, batches_ = 0;

  std::int64_t epoch_ = 0, batch_ = 0;
  std::int64_t prepared_epoch_ = -1;        // the epoch that the following are for
  std::vector<std::int64_t> order_;         // sample numbers; empty if not shuffled
  at::Tensor device_order_, device_flips_;  // copies where the data is, if that is not the host
};

InMemory::InMemory(Batch data, InMemoryOptions options) : data_(std::move(data)), options_(std::move(options)) {
  const std::int64_t batch_size = options_.batch_size;
  if (batch_size < 1) throw ConfigError("in_memory: batch_size must be >= 1, got ", batch_size);
  for (const auto& [name, tensor] : data_)
    if (tensor.defined() && tensor.dim() == 0)
      throw DataError("in_memory: \"", name, "\" has no dimensions; the first one counts the samples");
  samples_ = get_num_samples_in_batch(data_);
  for (const auto& [name, tensor] : data_)
    if (tensor.device() != data_.front().device())
      throw DataError("in_memory: all tensors must be on one device; \"", name, "\" is on ", tensor.device(),
                      ", the first on ", data_.front().device());
  if (samples_ == 0) throw DataError("in_memory: there are no samples");
  batches_ = options_.drop_last ? samples_ / batch_size : (samples_ + batch_size - 1) / batch_size;
  if (batches_ == 0)
    throw ConfigError("in_memory: drop_last with a batch_size of ", batch_size, " leaves nothing of ", samples_,
                      " samples");
  lay_out();
}

// Samples one after another in memory.
void InMemory::lay_out() {
  const auto& [batch_size, shuffle, seed, drop_last, image, normalize, flip, channels_last] = options_;
  const bool images = normalize || flip || channels_last;
  if (images && !data_.contains(image))
    throw ConfigError("in_memory: normalize, flip and channels_last need a tensor called \"", image,
                      "\" (option image)");
  for (auto& [name, tensor] : data_) {
    tensor = tensor.detach();
    if (channels_last && name == image && tensor.dim() == 4) {
      tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
      // with one channel both formats are the same memory, and only the strides tell them apart
      tensor = tensor.as_strided(tensor.sizes(), c10::get_channels_last_strides_2d(tensor.sizes()));
    } else {
      tensor = tensor.contiguous(tensor.suggest_memory_format());
    }
  }
  if (images) pass_ = ImagePass(options_, data_.at(image));
}

void InMemory::seek(std::int64_t epoch, std::int64_t batch) {
  if (epoch < 0 || batch < 0 || batch > batches_)
    throw ConfigError("in_memory: there is no batch ", batch, " in epoch ", epoch, "; an epoch has ", batches_,
                      " batches");
  epoch_ = epoch;
  batch_ = batch;
}

std::optional<Batch> InMemory::next() {
  if (batch_ == batches_) return std::nullopt;
  if (prepared_epoch_ != epoch_) prepare_epoch();
  const std::int64_t from = batch_ * options_.batch_size;
  const std::int64_t count = std::min(options_.batch_size, samples_ - from);
  Batch batch = data_;
  for (auto& [name, tensor] : batch) {
    const ImagePass* pass = !pass_.empty() && name == options_.image ? &pass_ : nullptr;
    if (!options_.shuffle && !pass) {
      tensor = tensor.slice(0, from, from + count);
    } else {
      tensor = tensor.is_cpu() ? gather(tensor, pass, from, count) : gather_on_device(tensor, pass, from, count);
    }
  }
  ++batch_;
  return batch;
}

void InMemory::prepare_epoch() {
  if (options_.shuffle) shuffle();
  prepared_epoch_ = epoch_;
  const auto device = data_.front().device();
  if (device.is_cpu()) return;
  if (options_.shuffle) device_order_ = at::tensor(order_).to(device);
  if (!options_.flip) return;
  at::Tensor flips = at::empty(samples_, at::kBool);
  for (std::int64_t i = 0; i < samples_; ++i) flips.mutable_data_ptr<bool>()[i] = pass_.flips(epoch_, sample_at(i));
  device_flips_ = flips.to(device);
}

// Fisher and Yates: all orders are equally likely.
void InMemory::shuffle() {
  order_.resize(static_cast<std::size_t>(samples_));
  RandomStream random(hash64(options_.seed, kOrder, epoch_));
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const std::size_t other = random.below(i + 1);
    order_[i] = order_[other];
    order_[other] = static_cast<std::int64_t>(i);
  }
}

at::Tensor InMemory::gather(const at::Tensor& source, const ImagePass* pass, std::int64_t from,
                            std::int64_t count) const {
  at::DimVector shape(source.sizes());
  shape[0] = count;
  const at::ScalarType type = pass ? pass->type_after(source.scalar_type()) : source.scalar_type();
  at::Tensor out = at::empty(shape, source.options().dtype(type), source.suggest_memory_format());
  const std::int64_t values = source.numel() / samples_;
  const std::int64_t row = values * static_cast<std::int64_t>(source.element_size());
  const std::int64_t out_row = values * static_cast<std::int64_t>(out.element_size());
  const auto* in = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());

  const auto copy = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t sample = sample_at(from + i);
      if (i + 1 < end) prefetch(in + sample_at(from + i + 1) * row, row);
      if (pass) {
        pass->apply(in + sample * row, to + i * out_row, pass->flips(epoch_, sample));
      } else {
        std::memcpy(to + i * out_row, in + sample * row, static_cast<std::size_t>(row));
      }
    }
  };
  if (count * out_row <= kBytesPerThread) {
    copy(0, count);
  } else {
    at::parallel_for(0, count, std::max<std::int64_t>(1, kBytesPerThread / out_row), copy);
  }
  return out;
}

at::Tensor InMemory::gather_on_device(const at::Tensor& source, const ImagePass* pass, std::int64_t from,
                                      std::int64_t count) const {
  at::Tensor out;
  if (!options_.shuffle) {
    out = source.slice(0, from, from + count);
  } else if (const at::Tensor order = device_order_.slice(0, from, from + count);
             source.suggest_memory_format() == at::MemoryFormat::ChannelsLast) {
    out = source.permute({0, 2, 3, 1}).index_select(0, order).permute({0, 3, 1, 2});
  } else {
    out = source.index_select(0, order);
  }
  if (!pass) return out;
  return pass->apply(std::move(out),
                     device_flips_.defined() ? device_flips_.slice(0, from, from + count) : at::Tensor());
}

}  // namespace

std::shared_ptr<Loader> in_memory(Batch data, InMemoryOptions options) {
  return std::make_shared<InMemory>(std::move(data), std::move(options));
}

}  // namespace composer::data

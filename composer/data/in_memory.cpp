#include "composer/data/in_memory.h"

#include <mutex>
#include <utility>

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <c10/core/MemoryFormat.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/batch_memory.h"
#include "composer/data/data_spec.h"
#include "composer/data/gather.h"
#include "composer/data/image_pass.h"
#include "composer/data/loader_parts.h"
#include "composer/data/seekable_loader.h"

namespace composer::data {
namespace {

using detail::BatchMemory;
using detail::ImagePass;
using detail::Sampler;

std::vector<Option<InMemoryOptions>> in_memory_options() {
  using O = InMemoryOptions;
  return all_options(option("batch_size", &O::batch_size).at_least(1), option("shuffle", &O::shuffle),
                     option("seed", &O::seed), option("drop_last", &O::drop_last),
                     part("weights", &O::weights, "a tensor"),
                     option("samples_per_epoch", &O::samples_per_epoch).at_least(0), option("image", &O::image),
                     part("normalize", &O::normalize, "means and standard deviations"), option("flip", &O::flip),
                     option("crop_padding", &O::crop_padding).at_least(0), option("cutout", &O::cutout).at_least(0),
                     option("channels_last", &O::channels_last), option("prefetch", &O::prefetch).at_least(0),
                     option("pin_memory", &O::pin_memory));
}

Batch checked_data(Batch data) {
  for (const auto& [name, tensor] : data)
    if (tensor.defined() && tensor.dim() == 0)
      throw DataError("in_memory: \"", name, "\" has no dimensions; the first one counts the samples");
  for (const auto& [name, tensor] : data)
    if (const auto& [first, other] = *data.begin();
        tensor.defined() && other.defined() && tensor.size(0) != other.size(0))
      throw DataError("in_memory: \"", first, "\" has ", other.size(0), " samples, \"", name, "\" has ", tensor.size(0),
                      "; all tensors must have the same number");
  get_num_samples_in_batch(data);  // throws for data without tensors, or with an undefined one
  for (const auto& [name, tensor] : data)
    if (tensor.layout() != at::kStrided)
      throw DataError("in_memory: \"", name, "\" is of the layout ", tensor.layout(), ", and samples are taken from ",
                      "dense tensors alone; give its to_dense()");
  for (const auto& [name, tensor] : data)
    if (tensor.device() != data.front().device())
      throw DataError("in_memory: all tensors must be on one device; \"", name, "\" is on ", tensor.device(),
                      ", the first on ", data.front().device());
  return data;
}

// The data, and how batches are made from it. After construction, only members with a lock change, so batches can be
// made on any thread.
class Assembly {
 public:
  Assembly(Batch data, const InMemoryOptions& options);

  // The same data for another sampler, with separate memory for its batches.
  std::shared_ptr<Assembly> with(std::shared_ptr<const Sampler> sampler) const;

  Batch make(std::int64_t epoch, std::int64_t batch);

 private:
  struct Selection {
    std::uint64_t seed;
    std::int64_t epoch;
    Sampler::Span span;
    const std::int64_t* samples;  // indices of the batch's samples; nullptr: consecutive from span.from
    bool repeats;                 // whether a sample may be in an epoch several times
    std::int64_t sample(std::int64_t i) const { return samples ? samples[i] : span.from + i; }
    // What random choices depend on: two copies of a sample in one epoch must not be equal.
    std::int64_t key(std::int64_t i) const { return repeats ? span.from + i : sample(i); }
  };
  struct OnDevice {
    std::uint64_t seed = 0;
    std::int64_t epoch = -1;
    at::Tensor order, draws;
  };

  at::Tensor gather(const at::Tensor& source, const ImagePass* pass, const Selection& selection,
                    BatchMemory& memory) const;
  at::Tensor gather_on_device(const std::string& name, const at::Tensor& source, const ImagePass* pass,
                              const Selection& selection);
  static at::Tensor view(const std::string& name, const at::Tensor& source, const Selection& selection);
  void prepare_device(std::uint64_t seed, std::int64_t epoch);

  Assembly(const Assembly& other, std::shared_ptr<const Sampler> sampler);

  Batch data_;
  std::string image_;
  std::size_t keep_;
  std::shared_ptr<const Sampler> sampler_;
  std::int64_t samples_;
  ImagePass pass_;
  bool pin_memory_;
  std::vector<std::unique_ptr<BatchMemory>> memory_;  // one for each tensor of the data
  OnDevice on_device_;  // needs no lock: there is no second thread if the data is on a device
};

Assembly::Assembly(Batch data, const InMemoryOptions& options)
    : data_(std::move(data)),
      image_(options.image),
      keep_(static_cast<std::size_t>(options.prefetch) + detail::kHeldByOthers),
      samples_(data_.front().size(0)),
      pin_memory_(options.pin_memory) {
  const bool images =
      options.normalize || options.flip || options.crop_padding != 0 || options.cutout != 0 || options.channels_last;
  if (images && !data_.contains(image_))
    throw ConfigError("in_memory: normalize, flip, crop_padding, cutout and channels_last need a tensor called \"",
                      image_, "\" (option image)");
  // Makes each sample contiguous in memory.
  for (auto& [name, tensor] : data_) {
    tensor = tensor.detach().resolve_conj().resolve_neg();  // because rows are copied as bytes
    if (options.channels_last && name == image_ && tensor.dim() == 4) {
      tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
      // With one channel, both formats have the same memory, and differ only in their strides.
      tensor = tensor.as_strided(tensor.sizes(), c10::get_channels_last_strides_2d(tensor.sizes()));
    } else {
      tensor = tensor.contiguous(tensor.suggest_memory_format());
    }
    // Gives the tensor a version of its own, which is 0 until an operator writes into a view of it.
    tensor = tensor.variable_data();
  }
  if (images) pass_ = ImagePass(options, data_.at(image_));
}

Assembly::Assembly(const Assembly& other, std::shared_ptr<const Sampler> sampler)
    : data_(other.data_),
      image_(other.image_),
      keep_(other.keep_),
      sampler_(std::move(sampler)),
      samples_(other.samples_),
      pass_(other.pass_),
      pin_memory_(other.pin_memory_) {
  for (std::size_t i = 0; i < data_.size(); ++i) memory_.push_back(std::make_unique<BatchMemory>(keep_, pin_memory_));
}

std::shared_ptr<Assembly> Assembly::with(std::shared_ptr<const Sampler> sampler) const {
  return std::shared_ptr<Assembly>(new Assembly(*this, std::move(sampler)));
}

Batch Assembly::make(std::int64_t epoch, std::int64_t batch) {
  const std::shared_ptr<const Sampler::Order> order = sampler_->order(epoch);
  const Sampler::Span span = sampler_->span(batch);
  const Selection selection{sampler_->seed(), epoch, span, order ? order->data() + span.from : nullptr,
                            sampler_->repeats()};
  Batch made = data_;
  std::size_t at = 0;
  for (auto& [name, tensor] : made) {
    BatchMemory& memory = *memory_[at++];
    const ImagePass* pass = !pass_.empty() && name == image_ ? &pass_ : nullptr;
    if (!tensor.is_cpu()) {
      tensor = gather_on_device(name, tensor, pass, selection);
    } else if (selection.samples || pass || pin_memory_ ||
               tensor.is_inference()) {  // inference tensors have no version, so changes could not be detected
      tensor = gather(tensor, pass, selection, memory);
    } else {
      tensor = view(name, tensor, selection);
    }
  }
  return made;
}

at::Tensor Assembly::gather(const at::Tensor& source, const ImagePass* pass, const Selection& selection,
                            BatchMemory& memory) const {
  at::DimVector shape(source.sizes());
  shape[0] = selection.span.count;
  const at::ScalarType type = pass ? pass->type_after(source.scalar_type()) : source.scalar_type();
  at::Tensor out = memory.take(shape, type, source.suggest_memory_format());
  const std::int64_t values = source.numel() / samples_;
  const std::int64_t row = values * static_cast<std::int64_t>(source.element_size());
  const std::int64_t out_row = values * static_cast<std::int64_t>(out.element_size());
  const auto* in = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());

  if (!pass) {
    detail::gather_rows(to, selection.span.count, row, selection.samples != nullptr,
                        [&](std::int64_t i) { return in + selection.sample(i) * row; });
    return out;
  }
  detail::over_rows(selection.span.count, out_row, [&](std::int64_t begin, std::int64_t end) {
    ImagePass::Scratch scratch;
    for (std::int64_t i = begin; i < end; ++i) {
      if (selection.samples && i + 1 < end) detail::prefetch(in + selection.sample(i + 1) * row, row);
      pass->apply(in + selection.sample(i) * row, to + i * out_row,
                  pass->draw(selection.seed, selection.epoch, selection.key(i)), scratch);
    }
  });
  return out;
}

at::Tensor Assembly::view(const std::string& name, const at::Tensor& source, const Selection& selection) {
  if (!source.is_inference() && source._version() != 0)
    throw DataError("in_memory: the batch's \"", name,
                    "\" was changed in place, and the data with it: batches that are ",
                    "neither shuffled nor transformed are views of the data. Put a new tensor into the batch instead, ",
                    "e.g. batch.set(\"", name, "\", batch.at(\"", name, "\").sub(1))");
  return source.slice(0, selection.span.from, selection.span.from + selection.span.count);
}

at::Tensor Assembly::gather_on_device(const std::string& name, const at::Tensor& source, const ImagePass* pass,
                                      const Selection& selection) {
  if (on_device_.epoch != selection.epoch || on_device_.seed != selection.seed)
    prepare_device(selection.seed, selection.epoch);
  const std::int64_t from = selection.span.from, to = from + selection.span.count;
  at::Tensor out;
  if (!selection.samples) {
    out = view(name, source, selection);
  } else if (const at::Tensor order = on_device_.order.slice(0, from, to);
             source.suggest_memory_format() == at::MemoryFormat::ChannelsLast) {
    out = source.permute({0, 2, 3, 1}).index_select(0, order).permute({0, 3, 1, 2});
  } else {
    out = source.index_select(0, order);
  }
  if (!pass) return out;
  return pass->apply(std::move(out), pass->draws() ? on_device_.draws.slice(0, from, to) : at::Tensor());
}

void Assembly::prepare_device(std::uint64_t seed, std::int64_t epoch) {
  const auto device = data_.front().device();
  const std::shared_ptr<const Sampler::Order> shuffled = sampler_->order(epoch);
  if (shuffled) on_device_.order = at::tensor(*shuffled).to(device);
  if (pass_.draws()) {
    Sampler::Order keys(static_cast<std::size_t>(sampler_->num_samples()));
    for (std::size_t i = 0; i < keys.size(); ++i)
      keys[i] = shuffled && !sampler_->repeats() ? (*shuffled)[i] : static_cast<std::int64_t>(i);
    on_device_.draws = pass_.table(seed, epoch, keys).to(device);
  }
  on_device_.seed = seed;
  on_device_.epoch = epoch;
}

}  // namespace

namespace detail {

InMemoryOptions checked_loader(InMemoryOptions options, at::Device device) {
  options = checked("in_memory", std::move(options), in_memory_options());
  if (options.prefetch > 0 && !device.is_cpu())
    throw ConfigError("in_memory: prefetch requires data on the host, but the data is on ", device);
  if (options.pin_memory && !device.is_cpu())
    throw ConfigError("in_memory: pin_memory requires data on the host, but the data is on ", device);
  check_pin_memory("in_memory", options.pin_memory);
  return options;
}

std::shared_ptr<Sampler> sampler_of(std::int64_t samples, const InMemoryOptions& options) {
  return std::make_shared<Sampler>(SamplerOptions{.who = "in_memory",
                                                  .samples = samples,
                                                  .batch_size = options.batch_size,
                                                  .shuffle = options.shuffle,
                                                  .seed = options.seed,
                                                  .drop_last = options.drop_last,
                                                  .weights = weighted("in_memory", options.weights),
                                                  .samples_per_epoch = options.samples_per_epoch});
}

}  // namespace detail

std::shared_ptr<Loader> in_memory(Batch data, InMemoryOptions options) {
  data = checked_data(std::move(data));
  options = detail::checked_loader(std::move(options), data.front().device());
  auto sampler = detail::sampler_of(data.front().size(0), options);
  const detail::SeekableLoader::Ahead ahead{.threads = options.prefetch > 0, .depth = options.prefetch};
  const auto all = std::make_shared<const Assembly>(std::move(data), options);
  return std::make_shared<detail::SeekableLoader>(std::move(sampler), ahead, [all](const auto& batches) {
    return [assembly = all->with(batches)](std::int64_t epoch, std::int64_t batch, detail::StillWanted) {
      return assembly->make(epoch, batch);
    };
  });
}

}  // namespace composer::data

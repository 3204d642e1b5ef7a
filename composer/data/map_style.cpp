#include "composer/data/map_style.h"

#include <exception>
#include <mutex>
#include <span>

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/batch_memory.h"
#include "composer/data/buckets.h"
#include "composer/data/indexed_loader.h"
#include "composer/data/seekable_loader.h"
#include "composer/data/stack.h"

namespace composer::data {
namespace {

constexpr std::uint64_t kSample = 4;

std::vector<Option<MapStyleOptions>> map_style_options() {
  using O = MapStyleOptions;
  return all_options(
      option("batch_size", &O::batch_size).at_least(1), option("shuffle", &O::shuffle), option("seed", &O::seed),
      option("drop_last", &O::drop_last), part("weights", &O::weights, "a tensor"),
      option("samples_per_epoch", &O::samples_per_epoch).at_least(0),
      option("num_workers", &O::num_workers).at_least(0), option("prefetch_factor", &O::prefetch_factor).at_least(1),
      part("collate", &O::collate, "a function"), option("pin_memory", &O::pin_memory),
      part("lengths", &O::lengths, "a tensor"), option("bucket_batches", &O::bucket_batches).from_to(1, 1 << 30));
}

class MapStyle {
 public:
  MapStyle(detail::IndexedSource source, MapStyleOptions options, std::shared_ptr<const detail::Sampler> sampler)
      : source_(std::move(source)),
        options_(std::move(options)),
        sampler_(std::move(sampler)),
        stack_(static_cast<std::size_t>(options_.num_workers * options_.prefetch_factor) + detail::kHeldByOthers,
               options_.pin_memory) {}

  Batch make(std::int64_t epoch, std::int64_t batch, detail::StillWanted wanted);

 private:
  Sample get(std::int64_t index, RandomStream random, std::int64_t epoch, std::int64_t batch) const;
  Batch collate(std::vector<Sample> samples, std::span<const std::int64_t> indices);
  Batch make(std::int64_t epoch, std::int64_t batch, detail::Sampler::Span span, const detail::StillWanted& wanted);
  Batch empty(std::int64_t epoch, std::int64_t batch);
  void remember(const Batch& batch);

  detail::IndexedSource source_;
  MapStyleOptions options_;
  std::shared_ptr<const detail::Sampler> sampler_;
  detail::Stack stack_;
  std::mutex reading_first_;  // held by the worker that reads the first sample, so that it is read only once
  std::mutex mutex_;          // guards empty_
  Batch empty_;               // a batch with 0 rows, if the sampler is sliced and a batch has been made
};

Batch MapStyle::make(std::int64_t epoch, std::int64_t batch, detail::StillWanted wanted) {
  // Disables the caller's inference mode, so that results are the same as on a worker thread.
  const c10::InferenceMode no_inference(false);
  const at::NoGradGuard no_grad;
  const detail::Sampler::Span span = sampler_->span(batch);
  if (span.count == 0) return empty(epoch, batch);
  Batch made = make(epoch, batch, span, wanted);
  if (sampler_->is_sliced() && !made.empty()) remember(made);
  return made;
}

// An empty batch has the names, types and shapes of the first batch made. If none has been made, the first sample of
// all ranks is read.
Batch MapStyle::empty(std::int64_t epoch, std::int64_t batch) {
  const std::lock_guard one_reads(reading_first_);
  {
    const std::lock_guard lock(mutex_);
    if (!empty_.empty()) return empty_;
  }
  remember(make(epoch, batch, {.from = sampler_->span_of_all(batch).from, .count = 1}, {}));
  const std::lock_guard lock(mutex_);
  return empty_;
}

void MapStyle::remember(const Batch& batch) {
  const std::lock_guard lock(mutex_);
  if (!empty_.empty()) return;
  for (const auto& [name, tensor] : batch)
    empty_.set(name, tensor.defined() && tensor.dim() > 0 ? tensor.slice(0, 0, 0).clone() : tensor);
}

Batch MapStyle::make(std::int64_t epoch, std::int64_t batch, detail::Sampler::Span span,
                     const detail::StillWanted& wanted) {
  const std::vector<std::int64_t> indices = sampler_->indices(epoch, span);
  if (source_.before) source_.before(sampler_->seed(), epoch, span, indices, wanted);
  std::vector<Sample> samples;
  samples.reserve(indices.size());
  for (const std::int64_t index : indices) {
    if (!wanted()) return {};
    // Two copies of a sample in one epoch must not be equal, so what is drawn for them depends on their places as well.
    const std::uint64_t start = hash64(sampler_->seed(), kSample, epoch, index);
    const auto place = static_cast<std::uint64_t>(span.from) + samples.size();
    samples.push_back(get(index, RandomStream(sampler_->repeats() ? hash64(start, place) : start), epoch, batch));
  }
  try {
    return collate(std::move(samples), indices);
  } catch (...) {
    std::throw_with_nested(DataError(source_.who, ": collating batch ", batch, " of epoch ", epoch, " failed"));
  }
}

Sample MapStyle::get(std::int64_t index, RandomStream random, std::int64_t epoch, std::int64_t batch) const {
  try {
    return source_.samples.get(index, random);
  } catch (...) {
    std::throw_with_nested(
        DataError(source_.who, ": getting sample ", index, " for batch ", batch, " of epoch ", epoch, " failed"));
  }
}

Batch MapStyle::collate(std::vector<Sample> samples, std::span<const std::int64_t> indices) {
  if (!options_.collate) return stack_(samples, indices);
  Batch batch = options_.collate(std::move(samples));
  if (options_.pin_memory)
    for (auto& [name, tensor] : batch)
      if (tensor.is_cpu()) tensor = tensor.pin_memory();
  return batch;
}

}  // namespace

namespace detail {

std::shared_ptr<Loader> indexed_loader(IndexedSource source, MapStyleOptions options,
                                       std::shared_ptr<Sampler> sampler) {
  const SeekableLoader::Ahead ahead{.threads = options.num_workers,
                                    .depth = options.num_workers * options.prefetch_factor};
  return std::make_shared<SeekableLoader>(
      std::move(sampler), ahead, [source = std::move(source), options = std::move(options)](const auto& batches) {
        const auto maker = std::make_shared<MapStyle>(source, options, batches);
        return [maker](std::int64_t epoch, std::int64_t batch, StillWanted wanted) {
          return maker->make(epoch, batch, wanted);
        };
      });
}

}  // namespace detail

std::shared_ptr<Loader> map_style(SampleSource source, MapStyleOptions options) {
  if (!source.get) throw ConfigError("map_style: the data set is null");
  options = checked("map_style", std::move(options), map_style_options());
  detail::check_pin_memory("map_style", options.pin_memory);
  decltype(detail::SamplerOptions::arrange) arrange;
  if (options.lengths.defined())
    arrange = detail::buckets({.who = "map_style",
                               .lengths = options.lengths,
                               .samples = source.size,
                               .batch_size = options.batch_size,
                               .batches = options.bucket_batches,
                               .shuffle = options.shuffle});
  auto sampler = std::make_shared<detail::Sampler>(
      detail::SamplerOptions{.who = "map_style",
                             .samples = source.size,
                             .batch_size = options.batch_size,
                             .shuffle = options.shuffle,
                             .seed = options.seed,
                             .drop_last = options.drop_last,
                             .weights = detail::weighted("map_style", options.weights),
                             .samples_per_epoch = options.samples_per_epoch,
                             .arrange = std::move(arrange)});
  return detail::indexed_loader({.who = "map_style", .samples = std::move(source)}, std::move(options),
                                std::move(sampler));
}

}  // namespace composer::data

#include "composer/data/mds/streaming_dataset.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/batch_memory.h"
#include "composer/data/indexed_loader.h"
#include "composer/data/mds/mds_hash.h"
#include "composer/data/mds/shard_store.h"
#include "composer/data/mds/stream_order.h"

namespace composer::data {
namespace {

namespace fs = std::filesystem;
using detail::MdsShardInfo;
using detail::ShardStore;
using detail::StreamOrder;

constexpr const char* kDataset = "StreamingDataset";

std::vector<Option<StreamingOptions>> streaming_options() {
  using O = StreamingOptions;
  return all_options(option("local", &O::local).not_empty(), option("remote", &O::remote), option("split", &O::split),
                     option("columns", &O::columns), part("transform", &O::transform, "a function"),
                     part("decode_image", &O::decode_image, "a function"), option("validate_hash", &O::validate_hash),
                     option("cache_limit", &O::cache_limit).at_least(0, "bytes"), option("keep_zip", &O::keep_zip),
                     option("download_threads", &O::download_threads).from_to(1, 64),
                     option("download_retry", &O::download_retry).from_to(0, 100),
                     option("download_timeout", &O::download_timeout).from_to(1, 86400, "seconds"));
}

std::vector<Option<StreamingLoaderOptions>> streaming_loader_options() {
  using O = StreamingLoaderOptions;
  return all_options(option("batch_size", &O::batch_size).at_least(1), option("shuffle", &O::shuffle),
                     option("shuffle_block_size", &O::shuffle_block_size).at_least(1, "samples"),
                     option("num_canonical_nodes", &O::num_canonical_nodes).at_least(1), option("seed", &O::seed),
                     option("drop_last", &O::drop_last), option("num_workers", &O::num_workers).at_least(0),
                     option("prefetch_factor", &O::prefetch_factor).at_least(1),
                     option("predownload", &O::predownload).at_least(0, "samples"),
                     part("collate", &O::collate, "a function"), option("pin_memory", &O::pin_memory));
}

bool is_plain_name(const std::string& split) {
  return std::ranges::none_of(fs::path(split), [](const fs::path& part) { return part == ".." || part == "/"; });
}

// A folder becomes a URI of it.
std::string remote_uri(const StreamingOptions& options) {
  if (options.remote.empty()) return {};
  std::string uri = net::is_uri(options.remote) ? options.remote
                                                : "file://" + fs::absolute(options.remote).lexically_normal().string();
  if (options.split.empty()) return uri;
  const std::size_t query = uri.starts_with("http") ? std::min(uri.find('?'), uri.size()) : uri.size();
  std::string path = uri.substr(0, query);
  while (path.ends_with('/')) path.pop_back();
  return path + "/" + options.split + uri.substr(query);
}

detail::ShardStoreSetup store_setup(const StreamingOptions& options) {
  detail::ShardStoreSetup made{.remote = remote_uri(options),
                               .local = options.split.empty() ? options.local : options.local / options.split,
                               .validate_hash = options.validate_hash,
                               .cache_limit = static_cast<std::uint64_t>(options.cache_limit),
                               .download_threads = options.download_threads,
                               .keep_zip = options.keep_zip};
  made.http.http.retry.attempts = static_cast<int>(options.download_retry) + 1;
  made.http.http.stall_limit = std::chrono::milliseconds(std::llround(options.download_timeout * 1000));
  return made;
}

StreamingOptions checked_streaming(StreamingOptions options) {
  options = checked(kDataset, std::move(options), streaming_options());
  if (!is_plain_name(options.split))
    throw ConfigError(kDataset, ": split \"", options.split, "\" must lie in the folder");
  if (options.cache_limit > 0 && options.remote.empty())
    throw ConfigError(kDataset, ": cache_limit needs a remote, from which deleted shards can be fetched again");
  if (!options.validate_hash.empty() && !detail::is_mds_hash(options.validate_hash))
    throw ConfigError(kDataset, ": validate_hash \"", options.validate_hash, "\" is unknown; known are ",
                      detail::kMdsHashes);
  const std::string uri = remote_uri(options);
  std::error_code error;
  if (uri.starts_with("file://") &&
      fs::equivalent(uri.substr(7), options.split.empty() ? options.local : options.local / options.split, error))
    throw ConfigError(kDataset, ": remote and local are one folder; leave remote empty");
  return options;
}

std::uint64_t stored_bytes(const MdsShardInfo& shard) { return shard.raw.bytes + (shard.zip ? shard.zip->bytes : 0); }

}  // namespace

class StreamingDataset::Impl {
 public:
  explicit Impl(StreamingOptions options)
      : options_(checked_streaming(std::move(options))),
        reading_(
            std::make_shared<const detail::MdsReading>(detail::MdsReading{options_.decode_image, options_.columns})),
        store_(store_setup(options_)) {
    check_columns();
    starts_.push_back(0);
    for (const MdsShardInfo& shard : store_.shards()) {
      starts_.push_back(starts_.back() + shard.samples);
      largest_ = std::max(largest_, stored_bytes(shard));
    }
    // One for each thread that fetches, and those that are being read.
    const std::uint64_t least = largest_ * static_cast<std::uint64_t>(options_.download_threads + 2);
    if (options_.cache_limit > 0 && static_cast<std::uint64_t>(options_.cache_limit) < least)
      throw ConfigError(kDataset, ": cache_limit must be at least ", least, " bytes: shards have up to ", largest_,
                        ", and download_threads + 2 of them must fit; got ", options_.cache_limit);
  }

  std::int64_t size() const { return starts_.back(); }
  ShardStore& store() { return store_; }
  const StreamingOptions& options() const { return options_; }

  MdsSample sample(std::int64_t index) {
    if (index < 0 || index >= size())
      throw DataError(kDataset, ": there is no sample ", index, "; ", store_.index_name(), " has ", size());
    const auto shard = static_cast<std::size_t>(std::ranges::upper_bound(starts_, index) - starts_.begin()) - 1;
    return {store_.open(shard), index - starts_[shard], reading_};
  }

  Sample get(std::int64_t index, RandomStream random) {
    const MdsSample stored = sample(index);
    if (options_.transform) return options_.transform(stored, random);
    Sample made;
    if (!options_.columns.empty())
      for (const std::string& name : options_.columns) made.set(name, stored.tensor(name));
    else
      for (const std::string& name : stored.names()) made.set(name, stored.tensor(name));
    return made;
  }

 private:
  void check_columns() const {
    const detail::MdsColumns* last = nullptr;
    for (const MdsShardInfo& shard : store_.shards()) {
      if (shard.columns.get() == last) continue;  // usually all shards have the same ones
      last = shard.columns.get();
      for (const std::string& name : options_.columns)
        if (std::ranges::find(*last, name, &detail::MdsColumn::name) == last->end())
          throw ConfigError(kDataset, ": ", store_.index_name(), " has no column \"", name, "\", which columns names");
      for (const detail::MdsColumn& column : *last)
        if (column.encoding.kind == detail::MdsKind::PICKLE &&
            (options_.columns.empty() || std::ranges::find(options_.columns, column.name) != options_.columns.end()))
          throw DataError(kDataset, ": column \"", column.name, "\" of ", store_.index_name(),
                          " has Python pickles, which are code, and are never run here; name the other columns in "
                          "columns, or write it as json, ndarray or str");
    }
  }

  StreamingOptions options_;
  std::shared_ptr<const detail::MdsReading> reading_;
  ShardStore store_;
  std::vector<std::int64_t> starts_;  // first sample of each shard, and the end
  std::uint64_t largest_ = 0;
};

StreamingDataset::StreamingDataset(StreamingOptions options) : impl_(std::make_shared<Impl>(std::move(options))) {}
StreamingDataset::~StreamingDataset() = default;
StreamingDataset::StreamingDataset(const StreamingDataset&) = default;
StreamingDataset& StreamingDataset::operator=(const StreamingDataset&) = default;
StreamingDataset::StreamingDataset(StreamingDataset&&) noexcept = default;
StreamingDataset& StreamingDataset::operator=(StreamingDataset&&) noexcept = default;
std::int64_t StreamingDataset::size() const { return impl_->size(); }
Sample StreamingDataset::get(std::int64_t index, RandomStream random) const { return impl_->get(index, random); }
MdsSample StreamingDataset::sample(std::int64_t index) const { return impl_->sample(index); }

namespace {

// If the shards of a block do not fit, each of them is fetched again and again.
void check_cache(StreamingDataset::Impl& data, const StreamingLoaderOptions& options) {
  const std::int64_t limit = data.options().cache_limit;
  if (limit == 0 || !options.shuffle) return;
  double all = 0;
  for (const MdsShardInfo& shard : data.store().shards()) all += static_cast<double>(stored_bytes(shard));
  const auto samples = static_cast<double>(data.size());
  const double mixed = std::min(
      samples, static_cast<double>(options.shuffle_block_size) * static_cast<double>(options.num_canonical_nodes));
  const double fits = samples * static_cast<double>(limit) / all;
  if (fits < mixed)
    warn(join("streaming: cache_limit holds about ", static_cast<std::int64_t>(fits),
              " samples, and shuffle_block_size ", "mixes ", static_cast<std::int64_t>(mixed),
              ", so shards are fetched more than once in each epoch; set a ",
              "larger cache_limit or a smaller shuffle_block_size"));
}

}  // namespace

std::shared_ptr<Loader> streaming(const StreamingDataset& dataset, StreamingLoaderOptions options) {
  options = checked("streaming", std::move(options), streaming_loader_options());
  detail::check_pin_memory("streaming", options.pin_memory);
  if (options.batch_size % options.num_canonical_nodes != 0)
    throw ConfigError("streaming: num_canonical_nodes must divide batch_size, got ", options.num_canonical_nodes,
                      " and ", options.batch_size);
  const std::shared_ptr<StreamingDataset::Impl> data = dataset.impl();
  check_cache(*data, options);
  std::vector<std::int64_t> shard_samples;
  for (const MdsShardInfo& shard : data->store().shards()) shard_samples.push_back(shard.samples);
  const auto order =
      std::make_shared<const StreamOrder>(detail::StreamOrderSetup{.shard_samples = std::move(shard_samples),
                                                                   .batch_size = options.batch_size,
                                                                   .shuffle = options.shuffle,
                                                                   .block_size = options.shuffle_block_size,
                                                                   .nodes = options.num_canonical_nodes});
  decltype(detail::SamplerOptions::part) part;  // not for an order that is that of the samples
  if (options.shuffle || options.num_canonical_nodes > 1)
    part = [order](std::uint64_t seed, std::int64_t epoch, std::int64_t from, std::int64_t count) {
      return order->part(seed, epoch, from, count);
    };
  auto sampler = std::make_shared<detail::Sampler>(detail::SamplerOptions{.who = "streaming",
                                                                          .samples = data->size(),
                                                                          .batch_size = options.batch_size,
                                                                          .shuffle = options.shuffle,
                                                                          .seed = options.seed,
                                                                          .drop_last = options.drop_last,
                                                                          .part = std::move(part)});
  // Unset: as much as is mixed, so that the shards of the next block arrive while this one is read.
  const std::int64_t ahead =
      options.predownload.value_or(std::max(8 * options.batch_size, options.shuffle ? options.shuffle_block_size : 0)) /
      options.num_canonical_nodes;
  const auto before = [data, order, ahead](std::uint64_t seed, std::int64_t epoch, detail::Sampler::Span span,
                                           std::span<const std::int64_t> indices, const detail::StillWanted& wanted) {
    if (!data->store().fetches()) return;
    data->store().ahead(order->shards(seed, epoch, span.from, span.count, ahead));
    std::vector<std::size_t> needed;
    for (const std::int64_t index : indices)
      if (const std::size_t shard = order->place(index).shard; std::ranges::find(needed, shard) == needed.end())
        needed.push_back(shard);
    data->store().wait_for(needed, wanted);
  };
  return detail::indexed_loader(
      {.who = "streaming",
       .samples = {.size = data->size(),
                   .get = [data](std::int64_t index, RandomStream random) { return data->get(index, random); }},
       .before = before},
      {.batch_size = options.batch_size,
       .num_workers = options.num_workers,
       .prefetch_factor = options.prefetch_factor,
       .collate = options.collate,
       .pin_memory = options.pin_memory},
      std::move(sampler));
}

}  // namespace composer::data

#include "composer/data/mds/mds_shard.h"

#include <bit>
#include <cstring>
#include <utility>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"

namespace composer::data::detail {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers in shards are little-endian");

// Files are read by what reads weights, whose errors are of another type.
template <class F>
auto as_data_errors(F&& read) {
  try {
    return read();
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
}

}  // namespace

MdsShard::MdsShard(std::unique_ptr<formats::ByteSource> file, const MdsShardInfo& info)
    : file_(std::move(file)), columns_(info.columns) {
  if (file_->size() != info.raw.bytes)
    throw ShardDamage(name(), ": has ", file_->size(), " bytes, and ", info.raw.bytes, " by ", kMdsIndex,
                      "; it is damaged, or of another data set");
  std::uint32_t samples = 0;
  if (file_->size() < 8) throw ShardDamage(name(), ": has ", file_->size(), " bytes, too few for a shard");
  as_data_errors([&] { file_->read(0, &samples, sizeof(samples)); });
  if (samples != static_cast<std::uint64_t>(info.samples))
    throw ShardDamage(name(), ": has ", samples, " samples, and ", info.samples, " by ", kMdsIndex);
  const std::uint64_t begin = 8 + 4 * static_cast<std::uint64_t>(samples);
  if (begin > file_->size()) throw ShardDamage(name(), ": is too short for the places of ", samples, " samples");
  places_.resize(static_cast<std::size_t>(samples) + 1);
  as_data_errors([&] { file_->read(4, places_.data(), 4 * places_.size()); });
  std::uint64_t before = begin;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i] < before || places_[i] > file_->size())
      throw ShardDamage(name(), ": byte ", 4 + 4 * i, " says that sample ", i, " begins at byte ", places_[i],
                        ", which must lie from ", before, " to ", file_->size());
    before = places_[i];
  }
  if (before != file_->size())
    throw ShardDamage(name(), ": its last sample ends at byte ", before, " of ", file_->size());
}

std::string MdsShard::read(std::int64_t sample) const {
  const auto i = static_cast<std::size_t>(sample);
  return as_data_errors([&] { return file_->read(places_[i], places_[i + 1] - places_[i]); });
}

std::unique_ptr<MdsShard> open_mds_shard(const std::filesystem::path& file, const MdsShardInfo& info) {
  return std::make_unique<MdsShard>(as_data_errors([&] { return formats::open_file(file); }), info);
}

std::vector<std::string_view> mds_fields(std::string_view sample, const MdsColumns& columns) {
  std::uint64_t at = 0;
  for (const MdsColumn& column : columns) at += column.encoding.size ? 0 : 4;
  if (at > sample.size())
    throw DataError("has ", sample.size(), " bytes, too few for the sizes of ", at / 4, " columns");
  std::vector<std::string_view> fields;
  fields.reserve(columns.size());
  std::size_t size_at = 0;
  for (const MdsColumn& column : columns) {
    std::uint32_t size = column.encoding.size.value_or(0);
    if (!column.encoding.size) {
      std::memcpy(&size, sample.data() + size_at, sizeof(size));
      size_at += sizeof(size);
    }
    if (size > sample.size() - at)
      throw DataError("column \"", formats::shown(column.name), "\" has ", size, " bytes, and ", sample.size() - at,
                      " are left in the sample");
    fields.push_back(sample.substr(at, size));
    at += size;
  }
  if (at != sample.size()) throw DataError("has ", sample.size() - at, " bytes after its last column");
  return fields;
}

}  // namespace composer::data::detail

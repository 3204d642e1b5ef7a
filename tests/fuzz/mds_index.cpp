// An index.json of MDS: sizes fit, files lie below the folder, and what is accepted is written and read as the same.
#include "composer/data/mds/mds_index.h"

#include <set>

#include "composer/net/plain_path.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;
using namespace composer::data::detail;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<MdsShardInfo> shards;
  try {
    shards = read_mds_index({reinterpret_cast<const char*>(data), size}, "input");
  } catch (const DataError&) {
    return 0;
  }
  std::set<std::string> names;
  for (const MdsShardInfo& shard : shards) {
    fuzz::require(shard.samples >= 0 && 8 + 4 * static_cast<std::uint64_t>(shard.samples) <= shard.raw.bytes);
    fuzz::require(shard.raw.bytes <= 0xffffffff && !shard.columns->empty());
    fuzz::require(shard.zip.has_value() == !shard.compression.empty());
    fuzz::require(net::is_plain_path(shard.raw.name) && names.insert(shard.raw.name).second);
    if (shard.zip) fuzz::require(net::is_plain_path(shard.zip->name) && names.insert(shard.zip->name).second);
    const MdsShape shape{*shard.columns, shard.compression, {}, {}};
    const auto again = read_mds_index(mds_index_text(shape, {shard}), "again");
    fuzz::require(again.size() == 1 && again[0].raw.name == shard.raw.name && again[0].samples == shard.samples);
    fuzz::require(again[0].columns->front().name == shard.columns->front().name);
  }
  return 0;
}

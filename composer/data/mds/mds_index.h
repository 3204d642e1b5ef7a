#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/data/mds/mds_encoding.h"

namespace composer::data::detail {

struct MdsFile {
  std::string name;  // below the folder of index.json
  std::uint64_t bytes = 0;
  std::vector<std::pair<std::string, std::string>> hashes = {};  // algorithm, hexadecimal digest

  const std::string* hash(std::string_view algorithm) const;  // nullptr: it has none
};

struct MdsShardInfo {
  std::shared_ptr<const MdsColumns> columns;  // usually shared by all shards
  std::int64_t samples = 0;
  MdsFile raw;                      // the shard as it is read
  std::optional<MdsFile> zip = {};  // the compressed file that it is stored in, if it is
  std::string compression = {};     // such as "zstd" or "zstd:7"; empty: none
};

constexpr const char* kMdsIndex = "index.json";

// Reads index.json. Throws DataError, which begins with `name`, for what is not one, or not of version 2 of MDS. Names
// of files lie below the folder, sizes fit the format, and columns agree with their encodings; whether the compression
// is known is not checked.
std::vector<MdsShardInfo> read_mds_index(std::string_view text, const std::string& name);

// Writes it as mosaicml-streaming does.
struct MdsShape {
  const MdsColumns& columns;
  std::string compression;
  std::vector<std::string> hashes;
  std::optional<std::uint64_t> size_limit;
};
std::string mds_config_text(const MdsShape& shape);  // what each shard contains of it
std::string mds_index_text(const MdsShape& shape, const std::vector<MdsShardInfo>& shards);

}  // namespace composer::data::detail

#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/error.h"
#include "composer/data/mds/mds_index.h"
#include "composer/formats/byte_source.h"

namespace composer::data::detail {

// The file is there and was read, and is not what the index says: it may be fetched again. Other errors, such as those
// of permissions or of too many open files, say nothing about the file.
struct ShardDamage : DataError {
  using DataError::DataError;
};

// An uncompressed shard. Samples are read one by one, in any order, and copied, so the file may be deleted meanwhile.
// Thread-safe. Errors are DataErrors that begin with the name of the file.
class MdsShard {
 public:
  // Reads the places of the samples. Throws ShardDamage unless the file is what the index says.
  MdsShard(std::unique_ptr<formats::ByteSource> file, const MdsShardInfo& info);

  std::int64_t size() const { return static_cast<std::int64_t>(places_.size()) - 1; }
  std::string read(std::int64_t sample) const;  // 0 <= sample < size()
  const std::shared_ptr<const MdsColumns>& columns() const { return columns_; }
  const std::string& name() const { return file_->name(); }

 private:
  std::unique_ptr<formats::ByteSource> file_;
  std::shared_ptr<const MdsColumns> columns_;
  std::vector<std::uint32_t> places_;  // where samples begin, and the end of the last
};

std::unique_ptr<MdsShard> open_mds_shard(const std::filesystem::path& file, const MdsShardInfo& info);

// The values of the columns of a sample, in their order. Throws DataError, without the name of the file.
std::vector<std::string_view> mds_fields(std::string_view sample, const MdsColumns& columns);

}  // namespace composer::data::detail

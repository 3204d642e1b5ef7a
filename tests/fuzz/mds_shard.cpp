// A shard of MDS with a column of each kind: samples lie within the file, and values within their samples.
#include "composer/data/mds/mds_shard.h"

#include <algorithm>
#include <cstring>

#include "composer/data/mds/mds_value.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;
using namespace composer::data::detail;

namespace {

std::shared_ptr<const MdsColumns> columns_of_each_kind() {
  MdsColumns columns;
  for (const char* name : {"int", "float16", "ndarray", "ndarray:int32", "ndarray:uint16:2,3", "pil", "list[png]",
                           "jpeg_array", "str_int", "str_float", "bytes"})
    columns.push_back({name, name, *parse_mds_encoding(name)});
  return std::make_shared<const MdsColumns>(std::move(columns));
}

void read_value(const MdsEncoding& encoding, std::string_view bytes) {
  switch (encoding.kind) {
    case MdsKind::SCALAR:
    case MdsKind::NDARRAY:
      fuzz::require(read_mds_array(encoding, bytes).data.size() <= bytes.size());
      break;
    case MdsKind::PIL:
      fuzz::require(read_mds_pil(bytes).data.size() <= bytes.size());
      break;
    case MdsKind::LIST:
    case MdsKind::JPEG_ARRAY:
      for (const std::string_view item : read_mds_list(encoding, bytes)) fuzz::require(item.size() <= bytes.size());
      break;
    default:
      if (encoding.is_number()) read_mds_double(encoding, bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto columns = columns_of_each_kind();
  std::uint32_t samples = 0;
  if (size < sizeof(samples)) return 0;
  std::memcpy(&samples, data, sizeof(samples));  // as an index.json that says the same
  MdsShardInfo info{columns, samples, {"input", size, {}}};
  try {
    const MdsShard shard(fuzz::file_of(data, size), info);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(shard.size(), 50); ++i) {
      const std::string sample = shard.read(i);
      try {
        const auto fields = mds_fields(sample, *columns);
        for (std::size_t c = 0; c < fields.size(); ++c) {
          try {
            read_value((*columns)[c].encoding, fields[c]);
          } catch (const DataError&) {
          }
        }
      } catch (const DataError&) {
      }
    }
  } catch (const DataError&) {
  }
  return 0;
}

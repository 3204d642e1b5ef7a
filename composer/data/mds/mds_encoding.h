#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace composer::data::detail {

// The type of a number in a file, which is little-endian.
enum class MdsNumber : std::uint8_t {
  UINT8,
  INT8,
  UINT16,
  INT16,
  FLOAT16,
  UINT32,
  INT32,
  FLOAT32,
  UINT64,
  INT64,
  FLOAT64
};
std::size_t size_of(MdsNumber type);           // in bytes
std::string_view mds_name_of(MdsNumber type);  // as numpy calls it
std::optional<MdsNumber> mds_number(std::string_view name);

enum class MdsKind : std::uint8_t {
  BYTES,
  STR,
  JSON,
  SCALAR,
  NDARRAY,
  STR_INT,
  STR_FLOAT,
  STR_DECIMAL,
  PIL,
  JPEG,
  PNG,
  LIST,  // list[pil], list[jpeg], list[png]
  JPEG_ARRAY,
  PICKLE
};

// How the values of a column are stored.
struct MdsEncoding {
  MdsKind kind = MdsKind::BYTES;
  std::optional<MdsNumber> number = {};    // of a SCALAR; of an NDARRAY, if it is fixed
  std::vector<std::int64_t> shape = {};    // of an NDARRAY, if it is fixed; otherwise empty
  std::optional<std::uint32_t> size = {};  // of a value in bytes, if it is fixed

  bool is_number() const {
    return kind == MdsKind::SCALAR || kind == MdsKind::STR_INT || kind == MdsKind::STR_FLOAT ||
           kind == MdsKind::STR_DECIMAL;
  }
};

// nullopt: there is no such encoding.
std::optional<MdsEncoding> parse_mds_encoding(std::string_view name);
constexpr const char* kMdsEncodings =
    "bytes, str, json, int, uint8 to uint64, int8 to int64, float16 to float64, ndarray, ndarray:DTYPE, "
    "ndarray:DTYPE:SHAPE, str_int, str_float, str_decimal, pil, jpeg, png, jpeg_array, list[pil], list[jpeg] and "
    "list[png]";

struct MdsColumn {
  std::string name, encoding_name;
  MdsEncoding encoding;
};
using MdsColumns = std::vector<MdsColumn>;

}  // namespace composer::data::detail

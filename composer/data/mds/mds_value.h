#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "composer/data/mds/mds_encoding.h"

namespace composer::data::detail {

// The functions throw DataError, without the name of the file.

struct MdsArray {
  MdsNumber number = MdsNumber::UINT8;
  std::vector<std::int64_t> shape = {};
  std::string_view data = {};  // exactly as many bytes as number and shape say; at any address
};

// A SCALAR (which has no dimensions) or an NDARRAY.
MdsArray read_mds_array(const MdsEncoding& encoding, std::string_view bytes);
// A PIL image as [height, width, channels].
MdsArray read_mds_pil(std::string_view bytes);
// The items of a LIST or a JPEG_ARRAY.
std::vector<std::string_view> read_mds_list(const MdsEncoding& encoding, std::string_view bytes);

std::int64_t read_mds_integer(const MdsEncoding& encoding, std::string_view bytes);
double read_mds_double(const MdsEncoding& encoding, std::string_view bytes);

// As Python's str() writes it.
std::string mds_float_text(double value);

}  // namespace composer::data::detail

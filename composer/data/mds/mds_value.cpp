#include "composer/data/mds/mds_value.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "composer/core/error.h"
#include "composer/formats/json_reader.h"

namespace composer::data::detail {
namespace {

using formats::shown;

// Numbers of a type in the order of their codes in a dynamic ndarray.
constexpr std::pair<std::uint8_t, MdsNumber> kCodes[] = {
    {8, MdsNumber::UINT8},    {9, MdsNumber::INT8},    {16, MdsNumber::UINT16}, {17, MdsNumber::INT16},
    {18, MdsNumber::FLOAT16}, {32, MdsNumber::UINT32}, {33, MdsNumber::INT32},  {34, MdsNumber::FLOAT32},
    {64, MdsNumber::UINT64},  {65, MdsNumber::INT64},  {66, MdsNumber::FLOAT64}};

template <class T>
T taken(std::string_view& bytes, const char* what) {
  if (bytes.size() < sizeof(T)) throw DataError("ends within ", what);
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

MdsNumber taken_number(std::string_view& bytes) {
  const auto code = taken<std::uint8_t>(bytes, "the dtype of its array");
  for (const auto& [known, number] : kCodes)
    if (known == code) return number;
  throw DataError("has an array of the unknown dtype ", int{code});
}

std::uint64_t taken_size(std::string_view& bytes, int shape_type) {
  constexpr const char* kWhere = "the shape of its array";
  switch (shape_type) {
    case 0:
      return taken<std::uint8_t>(bytes, kWhere);
    case 1:
      return taken<std::uint16_t>(bytes, kWhere);
    case 2:
      return taken<std::uint32_t>(bytes, kWhere);
    default:
      return taken<std::uint64_t>(bytes, kWhere);
  }
}

std::vector<std::int64_t> taken_shape(std::string_view& bytes) {
  const auto byte = taken<std::uint8_t>(bytes, "the shape of its array");
  std::vector<std::int64_t> shape;
  for (int i = 0; i < byte >> 2; ++i) {
    const std::uint64_t size = taken_size(bytes, byte & 3);
    if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      throw DataError("has an array with a dimension of ", size);
    shape.push_back(static_cast<std::int64_t>(size));
  }
  return shape;
}

void check_bytes(const MdsArray& array) {
  std::uint64_t bytes = size_of(array.number);
  for (const std::int64_t size : array.shape) {
    const auto factor = static_cast<std::uint64_t>(size);
    if (factor != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / factor)
      throw DataError("has an array whose bytes cannot be counted");
    bytes *= factor;
  }
  if (bytes == array.data.size()) return;
  std::string shape;
  for (const std::int64_t size : array.shape) shape += join(shape.empty() ? "" : ", ", size);
  throw DataError("has an array [", shape, "] of ", mds_name_of(array.number), ", which takes ", bytes, " bytes, and ",
                  array.data.size(), " are there");
}

template <class T>
T parsed(std::string_view text, const char* what) {
  T value = {};
  std::string_view rest = text;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error == std::errc::result_out_of_range && rest.size() > 1)
    throw DataError("\"", shown(text), "\" is out of the range of ", what);
  if (error != std::errc() || end != rest.data() + rest.size()) throw DataError("\"", shown(text), "\" is not ", what);
  return value;
}

double half_to_double(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction == 0 ? std::numeric_limits<double>::infinity()
                                                       : std::numeric_limits<double>::quiet_NaN())
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -size : size;
}

// Calls `use` with the number as its own type.
template <class Use>
auto with_number(MdsNumber number, std::string_view bytes, Use use) {
  constexpr const char* kWhere = "its number";
  switch (number) {
    case MdsNumber::UINT8:
      return use(taken<std::uint8_t>(bytes, kWhere));
    case MdsNumber::INT8:
      return use(taken<std::int8_t>(bytes, kWhere));
    case MdsNumber::UINT16:
      return use(taken<std::uint16_t>(bytes, kWhere));
    case MdsNumber::INT16:
      return use(taken<std::int16_t>(bytes, kWhere));
    case MdsNumber::FLOAT16:
      return use(half_to_double(taken<std::uint16_t>(bytes, kWhere)));
    case MdsNumber::UINT32:
      return use(taken<std::uint32_t>(bytes, kWhere));
    case MdsNumber::INT32:
      return use(taken<std::int32_t>(bytes, kWhere));
    case MdsNumber::FLOAT32:
      return use(taken<float>(bytes, kWhere));
    case MdsNumber::UINT64:
      return use(taken<std::uint64_t>(bytes, kWhere));
    case MdsNumber::INT64:
      return use(taken<std::int64_t>(bytes, kWhere));
    default:
      return use(taken<double>(bytes, kWhere));
  }
}

}  // namespace

MdsArray read_mds_array(const MdsEncoding& encoding, std::string_view bytes) {
  MdsArray array;
  array.number = encoding.number ? *encoding.number : taken_number(bytes);
  if (encoding.kind == MdsKind::NDARRAY) array.shape = encoding.shape.empty() ? taken_shape(bytes) : encoding.shape;
  array.data = bytes;
  check_bytes(array);
  return array;
}

MdsArray read_mds_pil(std::string_view bytes) {
  constexpr const char* kWhere = "the size of its image";
  const auto width = taken<std::uint32_t>(bytes, kWhere), height = taken<std::uint32_t>(bytes, kWhere);
  const auto mode_size = taken<std::uint32_t>(bytes, kWhere);
  if (mode_size > bytes.size()) throw DataError("ends within the mode of its image");
  const std::string_view mode = bytes.substr(0, mode_size);
  bytes.remove_prefix(mode_size);
  constexpr struct {
    std::string_view mode;
    std::int64_t channels;
    MdsNumber number;
  } kModes[] = {{"L", 1, MdsNumber::UINT8},    {"RGB", 3, MdsNumber::UINT8},   {"RGBA", 4, MdsNumber::UINT8},
                {"CMYK", 4, MdsNumber::UINT8}, {"YCbCr", 3, MdsNumber::UINT8}, {"HSV", 3, MdsNumber::UINT8},
                {"LAB", 3, MdsNumber::UINT8},  {"LA", 2, MdsNumber::UINT8},    {"I", 1, MdsNumber::INT32},
                {"F", 1, MdsNumber::FLOAT32}};
  for (const auto& known : kModes)
    if (known.mode == mode) {
      MdsArray array{known.number, {height, width, known.channels}, bytes};
      check_bytes(array);
      return array;
    }
  throw DataError("has an image of the mode \"", shown(mode),
                  "\"; L, LA, RGB, RGBA, CMYK, YCbCr, HSV, LAB, I and F are read");
}

std::vector<std::string_view> read_mds_list(const MdsEncoding& encoding, std::string_view bytes) {
  constexpr const char* kWhere = "the sizes of its list";
  if (encoding.kind == MdsKind::LIST) taken<std::uint32_t>(bytes, kWhere);  // which stands for nothing yet
  const auto count = taken<std::uint32_t>(bytes, kWhere);
  if (count > bytes.size() / 4) throw DataError("ends within ", kWhere);
  std::string_view sizes = bytes.substr(0, std::size_t{4} * count);
  bytes.remove_prefix(sizes.size());
  std::vector<std::string_view> items;
  items.reserve(count);
  while (!sizes.empty()) {
    const auto size = taken<std::uint32_t>(sizes, kWhere);
    if (size > bytes.size())
      throw DataError("item ", items.size(), " of its list has ", size, " bytes, and ", bytes.size(), " are left");
    items.push_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (!bytes.empty()) throw DataError("has ", bytes.size(), " bytes after its list");
  return items;
}

std::int64_t read_mds_integer(const MdsEncoding& encoding, std::string_view bytes) {
  if (encoding.kind == MdsKind::STR_INT) return parsed<std::int64_t>(bytes, "an integer of 64 bits");
  if (encoding.kind != MdsKind::SCALAR) throw DataError("is not an integer");
  return with_number(*encoding.number, bytes, [](auto value) -> std::int64_t {
    if constexpr (std::is_floating_point_v<decltype(value)>)
      throw DataError("is not an integer");
    else if (!std::in_range<std::int64_t>(value))
      throw DataError("is ", value, ", beyond 2^63 - 1");
    else
      return static_cast<std::int64_t>(value);
  });
}

double read_mds_double(const MdsEncoding& encoding, std::string_view bytes) {
  if (encoding.kind == MdsKind::SCALAR)
    return with_number(*encoding.number, bytes, [](auto value) { return static_cast<double>(value); });
  if (!encoding.is_number()) throw DataError("is not a number");
  return parsed<double>(bytes, "a number");
}

std::string mds_float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end =
      std::to_chars(text, text + sizeof(text), value, plain ? std::chars_format::fixed : std::chars_format::scientific)
          .ptr;
  const std::string shortest(text, end);
  return plain && shortest.find('.') == std::string::npos ? shortest + ".0" : shortest;
}

}  // namespace composer::data::detail

#include "composer/data/mds/mds_encoding.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace composer::data::detail {
namespace {

struct NamedNumber {
  const char* name;
  MdsNumber number;
  std::size_t size;
};
constexpr std::array<NamedNumber, 11> kMdsNumbers = {{{"uint8", MdsNumber::UINT8, 1},
                                                      {"int8", MdsNumber::INT8, 1},
                                                      {"uint16", MdsNumber::UINT16, 2},
                                                      {"int16", MdsNumber::INT16, 2},
                                                      {"float16", MdsNumber::FLOAT16, 2},
                                                      {"uint32", MdsNumber::UINT32, 4},
                                                      {"int32", MdsNumber::INT32, 4},
                                                      {"float32", MdsNumber::FLOAT32, 4},
                                                      {"uint64", MdsNumber::UINT64, 8},
                                                      {"int64", MdsNumber::INT64, 8},
                                                      {"float64", MdsNumber::FLOAT64, 8}}};

constexpr std::pair<std::string_view, MdsKind> kMdsKinds[] = {
    {"bytes", MdsKind::BYTES},     {"str", MdsKind::STR},
    {"json", MdsKind::JSON},       {"ndarray", MdsKind::NDARRAY},
    {"str_int", MdsKind::STR_INT}, {"str_float", MdsKind::STR_FLOAT},
    {"pil", MdsKind::PIL},         {"jpeg", MdsKind::JPEG},
    {"png", MdsKind::PNG},         {"jpeg_array", MdsKind::JPEG_ARRAY},
    {"list[pil]", MdsKind::LIST},  {"jpegarray", MdsKind::JPEG_ARRAY},
    {"list[jpeg]", MdsKind::LIST}, {"list[png]", MdsKind::LIST},
    {"pkl", MdsKind::PICKLE},      {"str_decimal", MdsKind::STR_DECIMAL}};

// "3,224,224"; nullopt unless each number is at least 1 and the bytes of all can be counted in 32 bits.
std::optional<std::vector<std::int64_t>> parse_shape(std::string_view text, std::size_t number_size) {
  constexpr std::int64_t kMostBytes = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::int64_t> shape;
  std::int64_t bytes = static_cast<std::int64_t>(number_size);
  for (;;) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    if (error != std::errc() || size < 1 || size > kMostBytes / bytes || shape.size() == 63) return {};
    bytes *= size;
    shape.push_back(size);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.empty()) return shape;
    if (text.front() != ',') return {};
    text.remove_prefix(1);
  }
}

std::optional<MdsEncoding> parse_ndarray(std::string_view config) {
  MdsEncoding encoding{.kind = MdsKind::NDARRAY};
  const std::size_t colon = std::min(config.find(':'), config.size());
  encoding.number = mds_number(config.substr(0, colon));
  if (!encoding.number) return {};
  if (colon == config.size()) return encoding;
  const std::size_t each = size_of(*encoding.number);
  auto shape = parse_shape(config.substr(colon + 1), each);
  if (!shape) return {};
  std::uint64_t bytes = each;
  for (const std::int64_t size : *shape) bytes *= static_cast<std::uint64_t>(size);
  encoding.shape = std::move(*shape);
  encoding.size = static_cast<std::uint32_t>(bytes);
  return encoding;
}

}  // namespace

std::size_t size_of(MdsNumber type) { return std::ranges::find(kMdsNumbers, type, &NamedNumber::number)->size; }

std::string_view mds_name_of(MdsNumber type) {
  return std::ranges::find(kMdsNumbers, type, &NamedNumber::number)->name;
}

std::optional<MdsNumber> mds_number(std::string_view name) {
  for (const NamedNumber& known : kMdsNumbers)
    if (known.name == name) return known.number;
  return {};
}

std::optional<MdsEncoding> parse_mds_encoding(std::string_view name) {
  if (name == "int") return MdsEncoding{MdsKind::SCALAR, MdsNumber::INT64, {}, 8};
  if (const auto number = mds_number(name))
    return MdsEncoding{MdsKind::SCALAR, number, {}, static_cast<std::uint32_t>(size_of(*number))};
  if (name.starts_with("ndarray:")) return parse_ndarray(name.substr(8));
  for (const auto& [known, kind] : kMdsKinds)
    if (known == name) return MdsEncoding{.kind = kind};
  return {};
}

}  // namespace composer::data::detail

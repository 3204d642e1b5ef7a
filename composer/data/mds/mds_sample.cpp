#include "composer/data/mds/mds_sample.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>

#include "composer/core/error.h"
#include "composer/data/image/read_image.h"
#include "composer/data/mds/mds_shard.h"
#include "composer/data/mds/mds_value.h"
#include "composer/util/utf8.h"

namespace composer::data {
namespace {

using detail::MdsArray;
using detail::MdsColumn;
using detail::MdsKind;
using detail::MdsNumber;

at::ScalarType stored_type(MdsNumber number) {
  switch (number) {
    case MdsNumber::UINT8:
      return at::kByte;
    case MdsNumber::INT8:
      return at::kChar;
    case MdsNumber::INT16:
      return at::kShort;
    case MdsNumber::FLOAT16:
      return at::kHalf;
    case MdsNumber::UINT16:
    case MdsNumber::INT32:
      return at::kInt;
    case MdsNumber::FLOAT32:
      return at::kFloat;
    case MdsNumber::FLOAT64:
      return at::kDouble;
    default:
      return at::kLong;
  }
}

template <class From, class To>
void widen(std::string_view bytes, To* to) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    if (!std::in_range<To>(value)) throw DataError("has the number ", value, ", beyond 2^63 - 1");
    to[i] = static_cast<To>(value);
  }
}

at::Tensor tensor_of(const MdsArray& array) {
  at::Tensor tensor = at::empty(array.shape, stored_type(array.number));
  if (array.number == MdsNumber::UINT16)
    widen<std::uint16_t>(array.data, tensor.mutable_data_ptr<std::int32_t>());
  else if (array.number == MdsNumber::UINT32)
    widen<std::uint32_t>(array.data, tensor.mutable_data_ptr<std::int64_t>());
  else if (array.number == MdsNumber::UINT64)
    widen<std::uint64_t>(array.data, tensor.mutable_data_ptr<std::int64_t>());
  else if (!array.data.empty())
    std::memcpy(tensor.mutable_data_ptr(), array.data.data(), array.data.size());
  return tensor;
}

at::Tensor bytes_tensor(std::string_view bytes) {
  return tensor_of({MdsNumber::UINT8, {static_cast<std::int64_t>(bytes.size())}, bytes});
}

template <class T>
at::Tensor number_tensor(T value, at::ScalarType type) {
  at::Tensor tensor = at::empty({}, type);
  *tensor.mutable_data_ptr<T>() = value;
  return tensor;
}

}  // namespace

MdsSample::MdsSample(std::shared_ptr<const detail::MdsShard> shard, std::int64_t index,
                     std::shared_ptr<const detail::MdsReading> reading)
    : shard_(std::move(shard)), index_(index), reading_(std::move(reading)), bytes_(shard_->read(index)) {
  try {
    fields_ = detail::mds_fields(bytes_, *shard_->columns());
  } catch (const DataError& error) {
    throw DataError(place(), ": ", error.what());
  }
}

MdsSample::~MdsSample() = default;

std::string MdsSample::place() const { return join(shard_->name(), ": sample ", index_); }

std::vector<std::string> MdsSample::names() const {
  std::vector<std::string> names;
  for (const MdsColumn& column : *shard_->columns())
    if (reading_->columns.empty() || std::ranges::find(reading_->columns, column.name) != reading_->columns.end())
      names.push_back(column.name);
  return names;
}

bool MdsSample::contains(std::string_view name) const {
  return std::ranges::find(*shard_->columns(), name, &MdsColumn::name) != shard_->columns()->end();
}

std::size_t MdsSample::find(std::string_view name) const {
  const auto found = std::ranges::find(*shard_->columns(), name, &MdsColumn::name);
  if (found != shard_->columns()->end()) return static_cast<std::size_t>(found - shard_->columns()->begin());
  std::string known;
  for (const MdsColumn& column : *shard_->columns()) known += (known.empty() ? "" : ", ") + column.name;
  throw DataError(place(), ": has no column \"", name, "\"; there are: ", known);
}

template <class F>
auto MdsSample::at(std::string_view name, F&& read) const {
  const std::size_t i = find(name);
  const MdsColumn& column = (*shard_->columns())[i];
  try {
    return read(column.encoding, fields_[i]);
  } catch (const DataError& error) {
    throw DataError(place(), ": column \"", name, "\" (", column.encoding_name, ") ", error.what());
  }
}

std::string_view MdsSample::encoding(std::string_view name) const& {
  return (*shard_->columns())[find(name)].encoding_name;
}

std::string_view MdsSample::bytes(std::string_view name) const& { return fields_[find(name)]; }

std::string_view MdsSample::text(std::string_view name) const& {
  return at(name, [](const detail::MdsEncoding& encoding, std::string_view bytes) {
    using enum MdsKind;
    const auto kinds = {STR, JSON, STR_INT, STR_FLOAT, STR_DECIMAL};
    if (std::ranges::find(kinds, encoding.kind) == kinds.end()) throw DataError("is not a text");
    if (!util::is_utf8(bytes)) throw DataError("is not UTF-8");
    return bytes;
  });
}

std::int64_t MdsSample::integer(std::string_view name) const { return at(name, detail::read_mds_integer); }

double MdsSample::number(std::string_view name) const { return at(name, detail::read_mds_double); }

std::vector<std::string_view> MdsSample::list(std::string_view name) const& {
  return at(name, [](const detail::MdsEncoding& encoding, std::string_view bytes) {
    if (encoding.kind != MdsKind::LIST && encoding.kind != MdsKind::JPEG_ARRAY) throw DataError("is not a list");
    return detail::read_mds_list(encoding, bytes);
  });
}

at::Tensor MdsSample::tensor(std::string_view name) const {
  return at(name, [this](const detail::MdsEncoding& encoding, std::string_view bytes) {
    switch (encoding.kind) {
      case MdsKind::SCALAR:
      case MdsKind::NDARRAY:
        return tensor_of(detail::read_mds_array(encoding, bytes));
      case MdsKind::STR_INT:
        return number_tensor(detail::read_mds_integer(encoding, bytes), at::kLong);
      case MdsKind::STR_FLOAT:
      case MdsKind::STR_DECIMAL:
        return number_tensor(detail::read_mds_double(encoding, bytes), at::kDouble);
      case MdsKind::PIL:
        return tensor_of(detail::read_mds_pil(bytes)).permute({2, 0, 1}).contiguous();
      case MdsKind::JPEG:
      case MdsKind::PNG:
        if (reading_->decode_image) return reading_->decode_image(bytes);
        return decode_image({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, {}, "the image")
            .contiguous();
      case MdsKind::LIST:
      case MdsKind::JPEG_ARRAY:
        throw DataError("is a list, which a transform must read with list()");
      case MdsKind::PICKLE:
        throw DataError("is a Python pickle, which is code, and is never run here");
      default:
        return bytes_tensor(bytes);
    }
  });
}

}  // namespace composer::data

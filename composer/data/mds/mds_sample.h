#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::data {

// Makes an image [C, H, W] of the bytes of a JPEG or a PNG.
using DecodeImage = std::function<at::Tensor(std::string_view bytes)>;

namespace detail {
class MdsShard;
struct MdsReading {  // how the samples of a data set are read
  DecodeImage decode_image = {};
  std::vector<std::string> columns = {};  // empty: all
};
}  // namespace detail

// A sample of an MDS data set: a value for each column, read by name. Values are decoded when they are asked for.
// Functions throw DataError, which names the shard, the sample and the column, for a missing column, a value that is
// not what is asked for, and damaged data.
class COMPOSER_EXPORT MdsSample {
 public:
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const;
  std::string_view encoding(std::string_view name) const&;  // such as "str" or "ndarray:int32"

  // The value as it is stored. Valid as long as the sample, which therefore needs a name: dataset.sample(17).text("a")
  // does not compile.
  std::string_view bytes(std::string_view name) const&;
  // Of str, json, str_int, str_float and str_decimal.
  std::string_view text(std::string_view name) const&;
  // Of int, int8 to int64, uint8 to uint64 and str_int.
  std::int64_t integer(std::string_view name) const;
  // Of all numbers.
  double number(std::string_view name) const;
  // Numbers are tensors without dimensions; bytes, str and json are uint8 [bytes]; pil is uint8 [C, H, W]; jpeg and png
  // are uint8 [3, H, W], or what the data set's decode_image makes of them. uint16 becomes int32, and uint32 and uint64
  // become int64, because libtorch has few operators for them.
  at::Tensor tensor(std::string_view name) const;
  // The items of list[...] and jpeg_array, as they are stored. Valid as long as the sample.
  std::vector<std::string_view> list(std::string_view name) const&;

  std::string_view encoding(std::string_view name) const&& = delete;
  std::string_view bytes(std::string_view name) const&& = delete;
  std::string_view text(std::string_view name) const&& = delete;
  std::vector<std::string_view> list(std::string_view name) const&& = delete;

  // Where it comes from, for messages.
  std::string place() const;

  // For the data set.
  MdsSample(std::shared_ptr<const detail::MdsShard> shard, std::int64_t index,
            std::shared_ptr<const detail::MdsReading> reading);
  MdsSample(const MdsSample&) = delete;  // values are views of it
  MdsSample& operator=(const MdsSample&) = delete;
  ~MdsSample();

 private:
  std::size_t find(std::string_view name) const;
  template <class F>
  auto at(std::string_view name, F&& read) const;

  std::shared_ptr<const detail::MdsShard> shard_;
  std::int64_t index_;  // in the shard
  std::shared_ptr<const detail::MdsReading> reading_;
  std::string bytes_;
  std::vector<std::string_view> fields_;
};

}  // namespace composer::data

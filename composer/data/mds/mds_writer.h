#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"

namespace composer::data {

struct MdsWriterOptions {
  std::map<std::string, std::string> columns = {};  // required: name and encoding of each, such as {"text", "str"}
  std::string compression = {};                     // "zstd" or "gz", with a level as in "zstd:7"; empty: none
  std::vector<std::string> hashes = {};  // of each file: md5, sha1, sha256, blake2b, xxh64, xxh3_64 and others
  std::int64_t size_limit = 1 << 26;     // bytes of a shard before compression; 0: all samples in one shard
};

// A value of a column.
class MdsValue {
 public:
  template <std::integral T>  // throws DataError for 2^63 and more, which are not read either
  MdsValue(T value) : value_(whole(value)) {}
  MdsValue(double value) : value_(value) {}
  MdsValue(std::string bytes) : value_(std::move(bytes)) {}
  MdsValue(std::string_view bytes) : value_(std::string(bytes)) {}
  MdsValue(const char* text) : value_(std::string(text)) {}
  MdsValue(at::Tensor array) : value_(std::move(array)) {}

  using Any = std::variant<std::int64_t, double, std::string, at::Tensor>;
  const Any& any() const { return value_; }

 private:
  template <std::integral T>
  static std::int64_t whole(T value) {
    if constexpr (std::unsigned_integral<T> && sizeof(T) >= sizeof(std::int64_t)) check_size(value);
    return static_cast<std::int64_t>(value);
  }
  COMPOSER_EXPORT static void check_size(std::uint64_t value);

  Any value_;
};
using MdsRow = std::vector<std::pair<std::string, MdsValue>>;

// Writes an MDS data set, which libcomposer and mosaicml-streaming read. Numbers are written from numbers or tensors
// with one element; ndarray from tensors on the CPU; pil from uint8 tensors [1, 3 or 4, H, W]; str, json, bytes, jpeg,
// png and the others from texts, which hold the bytes.
//
// index.json is written by finish(), last: a writer that ends without it leaves shards and no data set.
class COMPOSER_EXPORT MdsWriter {
 public:
  // Creates the folder. Throws ConfigError for invalid options, or if the folder has an index.json.
  MdsWriter(const std::filesystem::path& out, MdsWriterOptions options);
  ~MdsWriter();
  MdsWriter(MdsWriter&&) noexcept;
  MdsWriter& operator=(MdsWriter&&) noexcept;

  // Throws DataError unless the row has exactly the columns, with values that fit their encodings; nothing of it is
  // written then. Throws Error if a file cannot be written.
  void write(const MdsRow& row);
  void finish();
  std::int64_t size() const;  // samples written

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::data

#include "composer/data/mds/mds_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include <c10/util/Half.h>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/mds/mds_compression.h"
#include "composer/data/mds/mds_hash.h"
#include "composer/data/mds/mds_index.h"
#include "composer/data/mds/mds_value.h"
#include "composer/formats/json_reader.h"
#include "composer/util/json.h"
#include "composer/util/new_file.h"
#include "composer/util/text.h"
#include "composer/util/utf8.h"

namespace composer::data {
namespace {

namespace fs = std::filesystem;
using detail::MdsColumn;
using detail::MdsEncoding;
using detail::MdsKind;
using detail::MdsNumber;

constexpr std::uint64_t kMostShard = std::numeric_limits<std::uint32_t>::max();  // places in a shard have 32 bits

std::vector<Option<MdsWriterOptions>> mds_writer_options() {
  using O = MdsWriterOptions;
  return all_options(option("columns", &O::columns).not_empty(), option("compression", &O::compression),
                     option("hashes", &O::hashes),
                     option("size_limit", &O::size_limit).from_to(0, static_cast<double>(kMostShard), "bytes"));
}

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T, class Value>
void put_number(std::string& out, Value value) {
  if constexpr (std::is_integral_v<T>) {
    if constexpr (std::is_floating_point_v<Value>) {
      throw DataError("takes a whole number, and got ", value);
    } else {
      if (!std::in_range<T>(value)) throw DataError("cannot hold ", value);
      put(out, static_cast<T>(value));
    }
  } else {
    put(out, static_cast<T>(static_cast<float>(value)));
  }
}

template <class Value>
void put_as(std::string& out, MdsNumber number, Value value) {
  switch (number) {
    case MdsNumber::UINT8:
      return put_number<std::uint8_t>(out, value);
    case MdsNumber::INT8:
      return put_number<std::int8_t>(out, value);
    case MdsNumber::UINT16:
      return put_number<std::uint16_t>(out, value);
    case MdsNumber::INT16:
      return put_number<std::int16_t>(out, value);
    case MdsNumber::FLOAT16:
      return put_number<c10::Half>(out, value);
    case MdsNumber::UINT32:
      return put_number<std::uint32_t>(out, value);
    case MdsNumber::INT32:
      return put_number<std::int32_t>(out, value);
    case MdsNumber::FLOAT32:
      return put_number<float>(out, value);
    case MdsNumber::UINT64:
      return put_number<std::uint64_t>(out, value);
    case MdsNumber::INT64:
      return put_number<std::int64_t>(out, value);
    case MdsNumber::FLOAT64:
      return put(out, static_cast<double>(value));
  }
}

std::optional<MdsNumber> number_of_type(at::ScalarType type) {
  switch (type) {
    case at::kByte:
    case at::kBool:
      return MdsNumber::UINT8;
    case at::kChar:
      return MdsNumber::INT8;
    case at::kUInt16:
      return MdsNumber::UINT16;
    case at::kShort:
      return MdsNumber::INT16;
    case at::kHalf:
      return MdsNumber::FLOAT16;
    case at::kUInt32:
      return MdsNumber::UINT32;
    case at::kInt:
      return MdsNumber::INT32;
    case at::kFloat:
      return MdsNumber::FLOAT32;
    case at::kUInt64:
      return MdsNumber::UINT64;
    case at::kLong:
      return MdsNumber::INT64;
    case at::kDouble:
      return MdsNumber::FLOAT64;
    default:
      return {};
  }
}

std::string_view bytes_of_tensor(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

at::Tensor plain_tensor(const at::Tensor& given) {
  if (!given.defined() || !given.is_cpu() || given.layout() != at::kStrided)
    throw DataError("takes a dense tensor on the CPU");
  return given.detach().resolve_conj().resolve_neg().contiguous();
}

void put_array(std::string& out, const MdsEncoding& encoding, const at::Tensor& given) {
  const at::Tensor tensor = plain_tensor(given);
  const auto number = number_of_type(tensor.scalar_type());
  if (!number || (encoding.number && *number != *encoding.number))
    throw DataError("takes ", encoding.number ? detail::mds_name_of(*encoding.number) : "numbers",
                    ", and got a tensor of ", tensor.scalar_type());
  if (tensor.dim() == 0 || tensor.dim() > 63 || tensor.numel() == 0)
    throw DataError("takes a tensor with 1 to 63 dimensions that has elements, and got ", tensor.sizes());
  if (!encoding.shape.empty() && tensor.sizes() != at::IntArrayRef(encoding.shape))
    throw DataError("takes a tensor ", at::IntArrayRef(encoding.shape), ", and got ", tensor.sizes());
  if (!encoding.number) {
    constexpr std::uint8_t kDtypes[] = {8, 9, 16, 17, 18, 32, 33, 34, 64, 65, 66};  // in the order of MdsNumber
    put(out, kDtypes[static_cast<std::size_t>(*number)]);
  }
  if (encoding.shape.empty()) {
    const auto most = static_cast<std::uint64_t>(*std::ranges::max_element(tensor.sizes()));
    const int kind = most < 1 << 8 ? 0 : most < 1 << 16 ? 1 : most < std::uint64_t{1} << 32 ? 2 : 3;
    put(out, static_cast<std::uint8_t>(tensor.dim() << 2 | kind));
    for (const std::int64_t size : tensor.sizes()) {
      const auto bits = static_cast<std::uint64_t>(size);
      out.append(reinterpret_cast<const char*>(&bits), std::size_t{1} << kind);
    }
  }
  out += bytes_of_tensor(tensor);
}

void put_pil(std::string& out, const at::Tensor& given) {
  const at::Tensor image = plain_tensor(given);
  if (image.dim() != 3 || image.scalar_type() != at::kByte ||
      (image.size(0) != 1 && image.size(0) != 3 && image.size(0) != 4))
    throw DataError("takes a uint8 tensor [1, 3 or 4, H, W], and got ", image.sizes(), " of ", image.scalar_type());
  const std::string_view mode = image.size(0) == 1 ? "L" : image.size(0) == 3 ? "RGB" : "RGBA";
  for (const std::int64_t size : {image.size(2), image.size(1)}) put(out, static_cast<std::uint32_t>(size));
  put(out, static_cast<std::uint32_t>(mode.size()));
  out += mode;
  out += bytes_of_tensor(image.permute({1, 2, 0}).contiguous());
}

// A tensor with one element as a number.
MdsValue::Any plain_number(const MdsValue::Any& value) {
  const auto* tensor = std::get_if<at::Tensor>(&value);
  if (!tensor) return value;
  if (!tensor->defined() || tensor->numel() != 1) throw DataError("takes a number");
  if (at::isFloatingType(tensor->scalar_type())) return tensor->item<double>();
  return tensor->item<std::int64_t>();
}

void put_text(std::string& out, const MdsEncoding& encoding, const std::string& text) {
  if (encoding.kind == MdsKind::STR && !util::is_utf8(text)) throw DataError("takes UTF-8");
  if (encoding.kind == MdsKind::JSON && util::parse_json_or_discard<nlohmann::json>(text).is_discarded())
    throw DataError("takes JSON, and got ", formats::shown(text));
  if (encoding.kind == MdsKind::STR_DECIMAL) detail::read_mds_double(encoding, text);
  out += text;
}

void put_value(std::string& out, const MdsEncoding& encoding, const MdsValue& value) {
  if (encoding.is_number() && encoding.kind != MdsKind::STR_DECIMAL) {
    const MdsValue::Any number = plain_number(value.any());
    if (encoding.kind == MdsKind::STR_INT) {
      if (!std::holds_alternative<std::int64_t>(number)) throw DataError("takes a whole number");
      out += join(std::get<std::int64_t>(number));
    } else if (const auto* whole = std::get_if<std::int64_t>(&number)) {
      encoding.kind == MdsKind::SCALAR ? put_as(out, *encoding.number, *whole)
                                       : void(out += detail::mds_float_text(static_cast<double>(*whole)));
    } else if (const auto* fraction = std::get_if<double>(&number)) {
      encoding.kind == MdsKind::SCALAR ? put_as(out, *encoding.number, *fraction)
                                       : void(out += detail::mds_float_text(*fraction));
    } else {
      throw DataError("takes a number, and got a text");
    }
    return;
  }
  const auto* tensor = std::get_if<at::Tensor>(&value.any());
  if (tensor && encoding.kind == MdsKind::NDARRAY) return put_array(out, encoding, *tensor);
  if (tensor && encoding.kind == MdsKind::PIL) return put_pil(out, *tensor);
  if (tensor && encoding.kind != MdsKind::STR && encoding.kind != MdsKind::JSON) {  // encoded bytes
    const at::Tensor bytes = plain_tensor(*tensor);
    if (bytes.scalar_type() != at::kByte) throw DataError("takes bytes, and got a tensor of ", bytes.scalar_type());
    out += bytes_of_tensor(bytes);
    return;
  }
  const auto* text = std::get_if<std::string>(&value.any());
  if (!text || encoding.kind == MdsKind::NDARRAY)
    throw DataError("takes a ", encoding.kind == MdsKind::NDARRAY ? "tensor" : "text");
  put_text(out, encoding, *text);
}

}  // namespace

void MdsValue::check_size(std::uint64_t value) {
  if (!std::in_range<std::int64_t>(value)) throw DataError("MdsValue: ", value, " is beyond 2^63 - 1");
}

class MdsWriter::Impl {
 public:
  Impl(fs::path out, MdsWriterOptions options);

  void write(const MdsRow& row);
  void finish();
  std::int64_t size() const { return written_ + static_cast<std::int64_t>(samples_.size()); }

 private:
  std::string encoded(const MdsRow& row) const;
  void flush();
  detail::MdsFile file_of(const std::string& name, std::string_view bytes) const;
  void save(const std::string& name, std::string_view bytes) const;
  detail::MdsShape shape() const {
    return {*columns_, options_.compression, options_.hashes,
            options_.size_limit > 0 ? std::optional(static_cast<std::uint64_t>(options_.size_limit)) : std::nullopt};
  }

  fs::path out_;
  MdsWriterOptions options_;
  std::shared_ptr<const detail::MdsColumns> columns_;
  std::optional<detail::MdsCompression> compression_;
  std::string config_;  // what each shard says of its columns
  std::vector<std::string> samples_;
  std::uint64_t shard_bytes_ = 0;
  std::vector<detail::MdsShardInfo> shards_;
  std::int64_t written_ = 0;
  bool is_finished_ = false;
};

MdsWriter::Impl::Impl(fs::path out, MdsWriterOptions options) : out_(std::move(out)) {
  options_ = checked("MdsWriter", std::move(options), mds_writer_options());
  detail::MdsColumns columns;
  for (const auto& [name, encoding_name] : options_.columns) {
    const auto encoding = detail::parse_mds_encoding(encoding_name);
    if (!encoding || encoding->kind == MdsKind::PICKLE)
      throw ConfigError("MdsWriter: column \"", name, "\" has the encoding \"", encoding_name,
                        "\", which is not written", "; these are: ", detail::kMdsEncodings);
    if (!util::is_utf8(name)) throw ConfigError("MdsWriter: the name of a column is not UTF-8");
    columns.push_back({name, encoding_name, *encoding});
  }
  columns_ = std::make_shared<const detail::MdsColumns>(std::move(columns));
  if (!options_.compression.empty()) compression_ = detail::parse_mds_compression("MdsWriter: ", options_.compression);
  std::ranges::sort(options_.hashes);  // as mosaicml-streaming wants them
  for (const std::string& hash : options_.hashes)
    if (!detail::is_mds_hash(hash) || std::ranges::count(options_.hashes, hash) > 1)
      throw ConfigError("MdsWriter: the hash \"", hash, "\" is unknown or there twice; known are ", detail::kMdsHashes);
  std::error_code error;
  if (fs::exists(out_ / detail::kMdsIndex, error))
    throw ConfigError("MdsWriter: ", out_.string(), " has an ", detail::kMdsIndex,
                      "; remove that data set, or choose another folder");
  fs::create_directories(out_, error);
  if (error) throw ConfigError("MdsWriter: ", out_.string(), " cannot be created: ", error.message());
  config_ = detail::mds_config_text(shape());
  shard_bytes_ = 8 + config_.size();
}

std::string MdsWriter::Impl::encoded(const MdsRow& row) const {
  std::string head, body;
  for (const MdsColumn& column : *columns_) {
    const auto is_it = [&](const auto& value) { return value.first == column.name; };
    const auto found = std::ranges::find_if(row, is_it);
    if (found == row.end()) throw DataError("MdsWriter: sample ", size(), " has no column \"", column.name, '"');
    const std::size_t before = body.size();
    try {
      put_value(body, column.encoding, found->second);
    } catch (const DataError& problem) {
      throw DataError("MdsWriter: sample ", size(), ": column \"", column.name, "\" (", column.encoding_name, ") ",
                      problem.what());
    }
    if (!column.encoding.size) put(head, static_cast<std::uint32_t>(body.size() - before));
    if (body.size() > kMostShard / 2)
      throw DataError("MdsWriter: sample ", size(), " is larger than ", kMostShard / 2, " bytes");
  }
  for (const auto& [name, value] : row)
    if (!options_.columns.contains(name))
      throw DataError("MdsWriter: sample ", size(), ": \"", name, "\" is no column");
  if (row.size() != columns_->size()) throw DataError("MdsWriter: sample ", size(), " has a column twice");
  return head + body;
}

void MdsWriter::Impl::write(const MdsRow& row) {
  if (is_finished_) throw ConfigError("MdsWriter: nothing can be written after finish()");
  std::string sample = encoded(row);
  const std::uint64_t bytes = sample.size() + 4;
  const std::uint64_t limit = options_.size_limit > 0 ? static_cast<std::uint64_t>(options_.size_limit) : kMostShard;
  if (limit < shard_bytes_ + bytes && (!samples_.empty() || options_.size_limit > 0)) flush();
  if (options_.size_limit == 0 && !shards_.empty())
    throw DataError("MdsWriter: without a size_limit all samples are in one shard, which cannot be larger than ",
                    kMostShard, " bytes");
  samples_.push_back(std::move(sample));
  shard_bytes_ += bytes;
}

detail::MdsFile MdsWriter::Impl::file_of(const std::string& name, std::string_view bytes) const {
  detail::MdsFile file{name, bytes.size(), {}};
  for (const std::string& hash : options_.hashes) file.hashes.emplace_back(hash, detail::mds_hash(hash, bytes));
  return file;
}

void MdsWriter::Impl::save(const std::string& name, std::string_view bytes) const {
  util::write_whole_file(out_ / name, bytes);
}

void MdsWriter::Impl::flush() {
  if (samples_.empty()) return;
  std::string shard;
  shard.reserve(static_cast<std::size_t>(shard_bytes_));
  put(shard, static_cast<std::uint32_t>(samples_.size()));
  std::uint64_t at = 4 + 4 * (samples_.size() + 1) + config_.size();
  put(shard, static_cast<std::uint32_t>(at));
  for (const std::string& sample : samples_) put(shard, static_cast<std::uint32_t>(at += sample.size()));
  shard += config_;
  for (const std::string& sample : samples_) shard += sample;
  const std::string name = "shard." + util::printed("%05zu", shards_.size()) + ".mds";
  detail::MdsShardInfo info{columns_, static_cast<std::int64_t>(samples_.size()), file_of(name, shard)};
  if (compression_) {
    const std::string zip = detail::mds_compressed(*compression_, shard);
    info.zip = file_of(name + "." + compression_->name, zip);
    save(info.zip->name, zip);
  } else {
    save(name, shard);
  }
  shards_.push_back(std::move(info));
  written_ += static_cast<std::int64_t>(samples_.size());
  samples_.clear();
  shard_bytes_ = 8 + config_.size();
}

void MdsWriter::Impl::finish() {
  if (is_finished_) return;
  flush();
  save(detail::kMdsIndex, detail::mds_index_text(shape(), shards_));
  is_finished_ = true;
}

MdsWriter::MdsWriter(const fs::path& out, MdsWriterOptions options)
    : impl_(std::make_unique<Impl>(out, std::move(options))) {}
MdsWriter::~MdsWriter() = default;
MdsWriter::MdsWriter(MdsWriter&&) noexcept = default;
MdsWriter& MdsWriter::operator=(MdsWriter&&) noexcept = default;
void MdsWriter::write(const MdsRow& row) { impl_->write(row); }
void MdsWriter::finish() { impl_->finish(); }
std::int64_t MdsWriter::size() const { return impl_->size(); }

}  // namespace composer::data

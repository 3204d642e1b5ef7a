#include "composer/formats/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "composer/core/error.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/json_reader.h"
#include "composer/formats/unsupported.h"
#include "composer/util/checksum.h"

namespace composer::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "the format's numbers are read and written as they are");

constexpr std::uint64_t kLongestHeader = 100'000'000;  // the limit of the format
constexpr std::size_t kLength = 8;                     // bytes of the header's length

// The keys of this library's metadata. A file has all three of them or none, so that damage to one is detected.
constexpr const char *kFormat = "composer.format", *kHeader = "composer.header", *kChecksums = "composer.checksums";
constexpr const char* kVersion = "1";
const std::string kNoChecksum = "xxh3:0000000000000000";
constexpr std::string_view kBeginning =
    R"({"__metadata__":{"composer.header":")";  // the beginning of a header with checksums, up to the header's checksum

bool is_checksum(std::string_view text) {
  return text.size() == kNoChecksum.size() && text.starts_with("xxh3:") &&
         text.substr(5).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// The checksum of length and header, where the digits of the checksum itself count as zeros.
std::string header_checksum(std::string_view header, std::size_t position) {
  util::Checksum sum;
  const std::uint64_t length = header.size();
  sum.update(&length, sizeof length);
  sum.update(header.data(), position);
  sum.update(kNoChecksum.data(), kNoChecksum.size());
  sum.update(header.data() + position + kNoChecksum.size(), header.size() - position - kNoChecksum.size());
  return sum.text();
}

class Parser {
 public:
  Parser(std::string_view header, const std::string& file)
      : header_(header), file_(file), json_(header, file, kLength) {}

  SafetensorsHeader parse() {
    json_.begin_object();
    bool metadata = false;
    std::string name;
    while (json_.next_key(name)) {
      if (name == "__metadata__") {
        if (std::exchange(metadata, true)) json_.fail("__metadata__ occurs twice, the second time");
        read_metadata();
      } else {
        read_entry(std::move(name));
      }
    }
    json_.end();
    refuse_equal_names();
    verify_checksums();
    refuse_unknown_dtypes();
    return std::move(result_);
  }

 private:
  void read_metadata() {
    if (header_.substr(json_.position()).starts_with("null")) return json_.null();
    json_.begin_object();
    std::string key;
    while (json_.next_key(key)) {
      if (key == kHeader) own_position_ = json_.position() + 1;  // after the quote
      std::string value = json_.string();
      if (!result_.metadata.emplace(key, std::move(value)).second)
        json_.fail("the metadata has " + shown(key) + " twice, the second time");
    }
  }

  void read_entry(std::string name) {
    TensorEntry entry{.name = std::move(name)};
    bool dtype = false, shape = false, offsets = false;
    json_.begin_object();
    std::string key;
    while (json_.next_key(key)) {
      bool* seen = key == "dtype" ? &dtype : key == "shape" ? &shape : key == "data_offsets" ? &offsets : nullptr;
      if (!seen) json_.fail(shown(entry.name) + ": unknown key " + shown(key));
      if (std::exchange(*seen, true)) json_.fail(shown(entry.name) + ": " + key + " occurs twice, the second time");
      if (seen == &dtype) {
        entry.dtype = json_.string();
      } else if (seen == &shape) {
        read_shape(entry);
      } else {
        read_offsets(entry);
      }
    }
    if (!dtype || !shape || !offsets) json_.fail(shown(entry.name) + ": dtype, shape or data_offsets is missing");
    check_size(entry);
    result_.tensors.push_back(std::move(entry));
  }

  void read_shape(TensorEntry& entry) {
    json_.begin_array();
    while (json_.next_item()) {
      if (entry.shape.size() == kMostDimensions) json_.fail(shown(entry.name) + ": more than 64 dimensions");
      entry.shape.push_back(json_.integer());
    }
  }

  void read_offsets(TensorEntry& entry) {
    json_.begin_array();
    std::uint64_t* const ends[] = {&entry.begin, &entry.end};
    for (std::uint64_t* end : ends) {
      if (!json_.next_item()) json_.fail(shown(entry.name) + ": data_offsets needs two numbers");
      *end = static_cast<std::uint64_t>(json_.integer());
    }
    if (json_.next_item()) json_.fail(shown(entry.name) + ": data_offsets has more than two numbers");
  }

  void check_size(const TensorEntry& entry) const {
    std::uint64_t bits = 0;
    if (!tensor_bytes(entry.shape, std::max<std::size_t>(element_bits(entry.dtype), 1), bits))
      json_.fail(shown(entry.name) + ": shape is too large");
    const bool fits = entry.begin <= entry.end && bits % 8 == 0 && entry.end - entry.begin == bits / 8;
    if (!fits && element_bits(entry.dtype) != 0)
      json_.fail(join(shown(entry.name), ": data_offsets ", entry.begin, " to ", entry.end, " are not the ", bits / 8,
                      " bytes of its shape and dtype"));
  }

  // Called after the checksums were verified, because a damaged dtype would look like an unknown one.
  void refuse_unknown_dtypes() const {
    for (const TensorEntry& entry : result_.tensors)
      if (element_bits(entry.dtype) == 0)
        throw UnsupportedError(file_, ": ", shown(entry.name), ": unknown dtype ", shown(entry.dtype));
  }

  void refuse_equal_names() const {
    std::set<std::string_view> names;
    for (const TensorEntry& entry : result_.tensors)
      if (!names.insert(entry.name).second)
        throw CheckpointError(file_, ": two tensors are called ", shown(entry.name));
  }

  // Moves this library's keys from the metadata to the fields of the header.
  void verify_checksums() {
    auto& metadata = result_.metadata;
    const auto format = metadata.find(kFormat), header = metadata.find(kHeader), sums = metadata.find(kChecksums);
    const auto present = {format != metadata.end(), header != metadata.end(), sums != metadata.end()};
    const auto number = std::count(present.begin(), present.end(), true);
    if (number == 0) return;
    if (number < 3) throw CheckpointError(file_, ": a part of the checksums is missing: the header is damaged");
    // This library writes the key without escapes; a key written with escapes is not intact.
    const bool intact = is_checksum(header->second) &&
                        header_.substr(own_position_, kNoChecksum.size()) == header->second &&
                        header_checksum(header_, own_position_) == header->second;
    if (format->second != kVersion) {
      const std::string what =
          join(file_, ": ", kFormat, " is ", shown(format->second), "; this version reads ", kVersion);
      if (intact) throw UnsupportedError(what);
      throw CheckpointError(what);
    }
    if (!intact)
      throw CheckpointError(file_, ": the header is damaged: it does not match its checksum at byte ",
                            kLength + own_position_);
    read_checksums(sums->second);
    result_.checksums = true;
    result_.checksum = header->second;
    for (const char* key : {kFormat, kHeader, kChecksums}) metadata.erase(key);
  }

  // Reads {name: checksum} for all tensors.
  void read_checksums(const std::string& text) {
    std::map<std::string_view, TensorEntry*> entries;
    for (TensorEntry& entry : result_.tensors) entries.emplace(entry.name, &entry);
    const std::string name = file_ + ": " + kChecksums;
    JsonReader json(text, name);
    json.begin_object();
    std::string tensor;
    while (json.next_key(tensor)) {
      const auto found = entries.find(tensor);
      if (found == entries.end())
        json.fail("no tensor is called " + shown(tensor) + ", or it occurs twice, the second time");
      found->second->checksum = json.string();
      if (!is_checksum(found->second->checksum)) json.fail(shown(tensor) + ": not a checksum that this version knows");
      entries.erase(found);
    }
    json.end();
    if (!entries.empty()) json.fail(join(shown(entries.begin()->first), " has no checksum"));
  }

  std::string_view header_;
  const std::string& file_;
  JsonReader json_;
  SafetensorsHeader result_;
  std::size_t own_position_ = 0;  // position of the header's checksum in the header
};

void sort_and_fill(SafetensorsHeader& header, std::uint64_t data, const std::string& file) {
  auto& tensors = header.tensors;
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t at = 0;
  for (const TensorEntry& entry : tensors) {
    if (entry.begin != at)
      throw CheckpointError(file, ": ", shown(entry.name), " begins at byte ", entry.begin,
                            " of the data, but the previous tensor ends at ", at,
                            ": tensors overlap, or there is a hole");
    at = entry.end;
  }
  if (at != data)
    throw CheckpointError(file, ": the tensors take ", at, " bytes, but the file has ", data, " after the header",
                          at > data ? ": it is cut off" : "");
}

}  // namespace

std::size_t element_bits(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::size_t> kBits[] = {
      {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},        {"U8", 8},          {"I8", 8},
      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"I64", 64},    {"U64", 64},    {"F64", 64},    {"C64", 64},
  };
  for (const auto& [name, bits] : kBits)
    if (name == dtype) return bits;
  return 0;
}

std::size_t element_bytes(std::string_view dtype) {
  const std::size_t bits = element_bits(dtype);
  return bits % 8 == 0 ? bits / 8 : 0;
}

bool tensor_bytes(const std::vector<std::int64_t>& shape, std::size_t element, std::uint64_t& bytes) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t product = element;
  bool empty = false;
  for (const std::int64_t dimension : shape) {
    empty |= dimension == 0;
    const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(dimension, 1));
    if (product > kMost / factor) return false;
    product *= factor;
  }
  bytes = empty ? 0 : product;
  return true;
}

SafetensorsHeader read_safetensors_header(const ByteSource& file) {
  if (file.size() < kLength)
    throw CheckpointError(file.name(), ": has ", file.size(), " bytes, too few for a safetensors file");
  std::uint64_t length = 0;
  file.read(0, &length, sizeof length);
  if (length > kLongestHeader || length > file.size() - kLength)
    throw CheckpointError(file.name(), ": the header's length ", length, " at byte 0 is more than ",
                          length > kLongestHeader ? kLongestHeader : file.size() - kLength,
                          ": this is not a safetensors file, or it is cut off");
  const std::string text = file.read(kLength, static_cast<std::size_t>(length));
  SafetensorsHeader header = Parser(text, file.name()).parse();
  header.data = kLength + length;
  sort_and_fill(header, file.size() - header.data, file.name());
  return header;
}

std::string make_safetensors_header(const std::vector<TensorEntry>& tensors, const Metadata& metadata) {
  std::string sums, entries;
  std::set<std::string_view> names;
  for (const TensorEntry& entry : tensors) {
    if (entry.name == "__metadata__")
      throw ConfigError("a safetensors file cannot hold a tensor called ", shown(entry.name));
    if (!names.insert(entry.name).second) throw ConfigError("two tensors are called ", shown(entry.name));
    const std::string name = json_quoted(entry.name);
    sums += join(sums.empty() ? "{" : ",", name, ":\"", entry.checksum, '"');
    std::string shape;
    for (const std::int64_t dimension : entry.shape) shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
    entries += join(",", name, R"(:{"dtype":")", entry.dtype, R"(","shape":[)", shape, R"(],"data_offsets":[)",
                    entry.begin, ",", entry.end, "]}");
  }
  sums += sums.empty() ? "{}" : "}";

  std::string header = std::string(kBeginning);
  const std::size_t position = header.size();
  header += kNoChecksum + R"(",")" + kFormat + R"(":")" + kVersion + R"(",")" + kChecksums + "\":" + json_quoted(sums);
  for (const auto& [key, value] : metadata) {
    if (key == kHeader || key == kFormat || key == kChecksums)
      throw ConfigError("the metadata key ", key, " is reserved");
    header += "," + json_quoted(key) + ":" + json_quoted(value);
  }
  header += "}" + entries + "}";
  header.resize((header.size() + kLength - 1) / kLength * kLength, ' ');  // aligns the tensors
  if (header.size() > kLongestHeader)
    throw ConfigError("a safetensors header may have ", kLongestHeader, " bytes, and this one needs ", header.size());

  header.replace(position, kNoChecksum.size(), header_checksum(header, position));
  std::string bytes(kLength, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header;
}

std::string_view own_checksum(std::string_view made) {
  return made.substr(kLength + kBeginning.size(), kNoChecksum.size());
}

}  // namespace composer::formats

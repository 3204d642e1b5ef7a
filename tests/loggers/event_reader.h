#pragma once
// Reads event files of TensorBoard. Shares nothing with what writes them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace composer::test {

// A message of protobuf: its fields by number, in the order of the file.
class Message {
 public:
  struct Field {
    std::uint64_t bits = 0;  // of a number
    std::string_view bytes;  // of a text or message
  };

  explicit Message(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::uint64_t tag = varint(bytes);
      Field field;
      switch (tag & 7) {
        case 0:
          field.bits = varint(bytes);
          break;
        case 1:
          field.bits = fixed(take(bytes, 8));
          break;
        case 2:
          field.bytes = take(bytes, varint(bytes));
          break;
        case 5:
          field.bits = fixed(take(bytes, 4));
          break;
        default:
          throw std::runtime_error("unknown wire type");
      }
      fields_[static_cast<int>(tag >> 3)].push_back(field);
    }
  }

  bool has(int number) const { return fields_.contains(number); }
  std::vector<Field> all(int number) const { return has(number) ? fields_.at(number) : std::vector<Field>(); }
  std::uint64_t whole(int number) const { return has(number) ? one(number).bits : 0; }
  std::string text(int number) const { return has(number) ? std::string(one(number).bytes) : ""; }
  Message message(int number) const { return Message(has(number) ? one(number).bytes : ""); }
  double number(int number) const { return as<double>(one(number).bits); }
  double single(int number) const { return as<float>(static_cast<std::uint32_t>(one(number).bits)); }

  template <class T, class Bits>
  static T as(Bits bits) {
    static_assert(sizeof(T) == sizeof(Bits));
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  static std::uint64_t fixed(std::string_view bytes) {
    std::uint64_t bits = 0;
    for (std::size_t i = bytes.size(); i-- > 0;) bits = bits * 256 + static_cast<unsigned char>(bytes[i]);
    return bits;
  }
  static std::string_view take(std::string_view& bytes, std::uint64_t size) {
    if (size > bytes.size()) throw std::runtime_error("a message is cut off");
    const std::string_view taken = bytes.substr(0, size);
    bytes.remove_prefix(size);
    return taken;
  }

 private:
  const Field& one(int number) const {
    if (fields_.at(number).size() != 1) throw std::runtime_error("a field is there several times");
    return fields_.at(number)[0];
  }
  static std::uint64_t varint(std::string_view& bytes) {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(bytes, 1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("a number is too long");
  }
  std::map<int, std::vector<Field>> fields_;
};

// One bit at a time, from the polynomial 0x1EDC6F41 with its bits reversed.
inline std::uint32_t slow_crc32c(std::string_view bytes) {
  std::uint32_t sum = 0xFFFFFFFF;
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((sum ^ (static_cast<unsigned char>(c) >> bit)) & 1) != 0;
      sum = (sum >> 1) ^ (odd ? 0x82F63B78U : 0U);
    }
  return ~sum;
}

inline std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xA282EAD8U;
  return (rotated >> 17) | (rotated << 15);
}

struct TensorBoardValue {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string tag, plugin, content, description;
  std::uint64_t data_class = 0;
  bool has_metadata = false, is_simple = false;
  double simple = 0;
  std::uint64_t type = 0;
  bool has_shape = false;
  std::vector<std::int64_t> shape;
  std::string raw;                   // tensor_content
  std::vector<std::string> strings;  // string_val
  double single = 0;                 // float_val

  std::vector<double> doubles() const {
    std::vector<double> all;
    for (std::size_t i = 0; i + 8 <= raw.size(); i += 8)
      all.push_back(Message::as<double>(Message::fixed(std::string_view(raw).substr(i, 8))));
    return all;
  }
};

struct EventFile {
  std::string version;  // of the first event
  std::vector<TensorBoardValue> values;
  const TensorBoardValue& only(const std::string& tag) const {
    const TensorBoardValue* found = nullptr;
    for (const TensorBoardValue& value : values)
      if (value.tag == tag) found = found == nullptr ? &value : throw std::runtime_error(tag + " is there twice");
    return found != nullptr ? *found : throw std::runtime_error(tag + " is missing");
  }
  std::vector<std::int64_t> steps(const std::string& tag) const {
    std::vector<std::int64_t> steps;
    for (const TensorBoardValue& value : values)
      if (value.tag == tag) steps.push_back(value.step);
    return steps;
  }
};

inline TensorBoardValue read_value(const Message& event, const Message& value) {
  TensorBoardValue read;
  read.wall_time = event.number(1);
  read.step = static_cast<std::int64_t>(event.whole(2));
  read.tag = value.text(1);
  read.is_simple = value.has(2);
  if (read.is_simple) read.simple = value.single(2);
  read.has_metadata = value.has(9);
  const Message metadata = value.message(9);
  read.plugin = metadata.message(1).text(1);
  read.content = metadata.message(1).text(2);
  read.description = metadata.text(3);
  read.data_class = metadata.whole(4);
  const Message tensor = value.message(8);
  read.type = tensor.whole(1);
  read.has_shape = tensor.has(2);
  const std::string shape = tensor.text(2), raw = tensor.text(4);
  for (const auto& dimension : Message(shape).all(2))
    read.shape.push_back(static_cast<std::int64_t>(Message(dimension.bytes).whole(1)));
  read.raw = raw;
  for (const auto& text : tensor.all(8)) read.strings.emplace_back(text.bytes);
  if (tensor.has(5)) read.single = tensor.single(5);
  return read;
}

// Throws for a wrong checksum and for a file that ends within a record.
inline EventFile read_events(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  const std::string all = text.str();
  EventFile file;
  bool is_first = true;
  for (std::string_view rest = all; !rest.empty(); is_first = false) {
    const std::string_view length = Message::take(rest, 8);
    const auto length_sum = static_cast<std::uint32_t>(Message::fixed(Message::take(rest, 4)));
    const std::string_view data = Message::take(rest, Message::fixed(length));
    const auto data_sum = static_cast<std::uint32_t>(Message::fixed(Message::take(rest, 4)));
    if (unmasked(length_sum) != slow_crc32c(length) || unmasked(data_sum) != slow_crc32c(data))
      throw std::runtime_error("a checksum is wrong");
    const Message event(data);
    if (is_first) file.version = event.text(3);
    for (const auto& value : event.message(5).all(1)) file.values.push_back(read_value(event, Message(value.bytes)));
  }
  return file;
}

inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().find("tfevents") != std::string::npos) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace composer::test

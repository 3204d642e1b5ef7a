#pragma once
// Writes protocol buffers, as far as event files of TensorBoard and models of ONNX need them. Written by hand, because
// the format of these few messages is fixed, while the protobuf library has no stable ABI and would be a dependency of
// every program that links libcomposer. libtorch also contains a copy of protobuf, which must not meet another version.
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace composer::util {

// A message that is being written. Each function adds one field. Fields may be added in any order.
class Protobuf {
 public:
  Protobuf& whole(int field, std::int64_t value) {  // int32, int64, bool, enum
    tag(field, 0);
    return varint(static_cast<std::uint64_t>(value));
  }
  Protobuf& number(int field, double value) { return fixed(field, 1, std::bit_cast<std::uint64_t>(value)); }
  Protobuf& single(int field, float value) { return fixed(field, 5, std::bit_cast<std::uint32_t>(value)); }
  Protobuf& text(int field, std::string_view value) {  // string, bytes
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Protobuf& message(int field, const Protobuf& value) { return text(field, value.bytes_); }
  // Adds an inner message without a copy: `add` adds its fields to the Protobuf that it gets.
  template <class Add>
  Protobuf& message(int field, const Add& add) {
    tag(field, 2);
    const std::size_t begin = bytes_.size();
    bytes_ += '\0';  // the length, which usually takes one byte
    add(*this);
    const Varint length(bytes_.size() - begin - 1);
    bytes_.replace(begin, 1, length.bytes.data(), length.size);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  struct Varint {
    explicit Varint(std::uint64_t value) {
      for (; value >= 0x80; value >>= 7) bytes[size++] = static_cast<char>(value | 0x80);
      bytes[size++] = static_cast<char>(value);
    }
    std::array<char, 10> bytes{};
    std::size_t size = 0;
  };

  void tag(int field, unsigned wire) { varint(static_cast<std::uint64_t>(field) << 3 | wire); }
  Protobuf& varint(std::uint64_t value) {
    const Varint varint(value);
    bytes_.append(varint.bytes.data(), varint.size);
    return *this;
  }
  template <class Bits>
  Protobuf& fixed(int field, unsigned wire, Bits bits) {
    tag(field, wire);
    std::array<char, sizeof(Bits)> bytes{};
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(bits >> 8 * i);
    bytes_.append(bytes.data(), bytes.size());
    return *this;
  }
  std::string bytes_;
};

}  // namespace composer::util

#pragma once
// Protocol buffers, as far as writing an event file of TensorBoard needs them. Written by hand, because the format of
// these few messages is fixed, while the protobuf library has no stable ABI and would be a dependency of every program
// that links libcomposer; libtorch contains a copy of its own, which must not meet another version.
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace composer::loggers {

// A message that is being written. Each function adds one field; those of a message may be added in any order.
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
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, unsigned wire) { varint(static_cast<std::uint64_t>(field) << 3 | wire); }
  Protobuf& varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  template <class Bits>
  Protobuf& fixed(int field, unsigned wire, Bits bits) {
    tag(field, wire);
    for (unsigned shift = 0; shift < 8 * sizeof(Bits); shift += 8) bytes_ += static_cast<char>(bits >> shift);
    return *this;
  }
  std::string bytes_;
};

}  // namespace composer::loggers

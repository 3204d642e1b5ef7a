#include "composer/formats/pickle_bytes.h"

#include <bit>

#include "composer/core/error.h"
#include "composer/formats/unsupported.h"

namespace composer::formats {
namespace {

constexpr std::size_t kLongest = 64 << 20;  // bytes of a pickle; one of 100,000 tensors has some 20 MB

}  // namespace

void PickleBytes::fail(const std::string& what) const {
  throw CheckpointError(name_, ": ", what, " at byte ", opcode_at_, " of its pickle");
}

void PickleBytes::refuse(const std::string& what) const {
  throw UnsupportedError(name_, ": ", what, " at byte ", opcode_at_, " of its pickle");
}

void PickleBytes::begin() {
  if (bytes_.size() > kLongest) fail(join("a pickle of ", bytes_.size(), " bytes is more than ", kLongest));
  if (bytes_.size() < 2 || bytes_[0] != '\x80' || bytes_[1] < 2 || bytes_[1] > 5)
    fail("not a pickle of protocol 2 to 5");
  at_ = 2;
}

unsigned PickleBytes::opcode() {
  opcode_at_ = at_;
  return static_cast<unsigned>(number(1));
}

std::string_view PickleBytes::take(std::uint64_t size) {
  if (size > left()) fail("the pickle is cut off");
  const std::string_view taken = bytes_.substr(at_, static_cast<std::size_t>(size));
  at_ += taken.size();
  return taken;
}

std::string_view PickleBytes::line() {
  const std::size_t end = bytes_.find('\n', at_);
  if (end == std::string_view::npos) fail("the pickle is cut off");
  const std::string_view line = take(end - at_);
  ++at_;
  return line;
}

std::uint64_t PickleBytes::number(std::size_t bytes) {
  std::uint64_t value = 0;
  const std::string_view taken = take(bytes);
  for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(taken[i]);
  return value;
}

double PickleBytes::real() {
  std::uint64_t bits = 0;
  for (const char c : take(8)) bits = bits << 8 | static_cast<unsigned char>(c);
  return std::bit_cast<double>(bits);
}

// Two's complement, of any length.
std::optional<std::int64_t> PickleBytes::long_integer() {
  const auto size = static_cast<std::size_t>(number(1));
  if (size > 8) {
    take(size);
    return std::nullopt;
  }
  std::uint64_t value = number(size);
  if (size > 0 && size < 8 && value >> (8 * size - 1)) value |= ~std::uint64_t{0} << 8 * size;
  return static_cast<std::int64_t>(value);
}

}  // namespace composer::formats

#include "composer/data/image/decode.h"

namespace composer::data::detail {
namespace {

// A TIFF file, whose numbers are in one byte order or the other. Reads 0 where it is cut off.
class Tiff {
 public:
  explicit Tiff(std::span<const std::uint8_t> bytes) : bytes_(bytes) {
    if (bytes.size() < 8) return;
    little_ = bytes[0] == 'I' && bytes[1] == 'I';
    valid_ = (little_ || (bytes[0] == 'M' && bytes[1] == 'M')) && number(2, 2) == 42;
  }

  bool valid() const { return valid_; }
  std::uint64_t number(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) return 0;
    std::uint64_t value = 0;
    for (std::uint64_t i = 0; i < size; ++i) value = value << 8 | bytes_[at + (little_ ? size - 1 - i : i)];
    return value;
  }

 private:
  std::span<const std::uint8_t> bytes_;
  bool little_ = false, valid_ = false;
};

}  // namespace

int exif_orientation(std::span<const std::uint8_t> tiff) {
  constexpr std::uint64_t kOrientation = 0x0112, kShort = 3, kEntry = 12;
  const Tiff file(tiff);
  if (!file.valid()) return 1;
  const std::uint64_t directory = file.number(4, 4), entries = file.number(directory, 2);  // at most 65535
  for (std::uint64_t i = 0; i < entries; ++i) {
    const std::uint64_t entry = directory + 2 + i * kEntry;
    if (file.number(entry, 2) != kOrientation) continue;
    const std::uint64_t value = file.number(entry + 8, 2);
    return file.number(entry + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace composer::data::detail

// A file of an image of any format: what is decoded fits into the memory that was asked for, and the header says the
// same.
#include <vector>

#include "composer/data/image/decode.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;
using namespace composer::data::detail;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::int64_t kMostPixels = 1 << 22, kChannels[] = {0, 1, 3, 4};
  const EncodedImage image{{data, size}, "input"};
  DecodeWishes wishes{.channels = kChannels[size % 4], .max_pixels = kMostPixels};
  if (size % 3 == 0) wishes.enough = [](const ImageHeader& header) { return Extent{header.height / 3, 1}; };
  std::vector<std::uint8_t> pixels;
  const auto memory = [&](std::int64_t height, std::int64_t width, std::int64_t channels) {
    fuzz::require(height > 0 && width > 0 && height * width <= kMostPixels && channels >= 1 && channels <= 4);
    pixels.resize(static_cast<std::size_t>(height * width * channels));
    return pixels.data();
  };
  try {
    const ImageHeader header = decode_image(image, wishes, memory);
    fuzz::require(!pixels.empty() && header.orientation >= 1 && header.orientation <= 8);
    const ImageHeader again = decode_image(image, wishes, {});
    fuzz::require(header.height == again.height && header.width == again.width && header.channels == again.channels);
  } catch (const DataError& error) {
    fuzz::require(std::string(error.what()).starts_with("input: "));
  }
  return 0;
}

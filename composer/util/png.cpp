#include "composer/util/png.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <png.h>
#include <span>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "composer/core/error.h"

namespace composer::util {
namespace {

using Byte = std::uint8_t;

std::string encoded(std::span<const Byte> pixels, std::int64_t width, std::int64_t height, std::int64_t channels) {
  constexpr std::int64_t kLongest = 1 << 20;
  if (width > kLongest || height > kLongest)
    throw Error("an image of ", width, " x ", height, " pixels is too large for a PNG");
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string file(size, '\0');
  if (png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr) == 0)
    throw Error("an image cannot be encoded as PNG: ", image.message);
  file.resize(size);
  return file;
}

Byte to_byte(float value) {
  if (!(value > 0)) return 0;  // also for NaN
  return static_cast<Byte>(std::lround(std::min(value, 1.0F) * 255.0F));
}

// Converts to uint8 [N, H, W, C], contiguous.
at::Tensor as_bytes(const at::Tensor& pixels) {
  if (pixels.scalar_type() == at::kByte) return pixels.contiguous();
  const at::Tensor floats = pixels.to(at::kFloat).contiguous();
  at::Tensor bytes = at::empty(floats.sizes(), at::kByte);
  const std::span from(floats.const_data_ptr<float>(), static_cast<std::size_t>(floats.numel()));
  std::ranges::transform(from, bytes.mutable_data_ptr<Byte>(), to_byte);
  return bytes;
}

// Twenty colors that are easy to tell apart; they repeat after that.
std::array<Byte, 3> color_of(std::int64_t value) {
  static constexpr std::array<std::array<Byte, 3>, 20> kColors = {
      {{0, 0, 0},       {230, 25, 75},   {60, 180, 75},   {255, 225, 25},  {0, 130, 200},
       {245, 130, 48},  {145, 30, 180},  {70, 240, 240},  {240, 50, 230},  {210, 245, 60},
       {250, 190, 212}, {0, 128, 128},   {220, 190, 255}, {170, 110, 40},  {255, 250, 200},
       {128, 0, 0},     {170, 255, 195}, {128, 128, 0},   {255, 215, 180}, {0, 0, 128}}};
  return kColors[static_cast<std::size_t>(((value % 20) + 20) % 20)];
}

}  // namespace

at::Tensor image_pixels(const LogImages& images, std::int64_t most) {
  at::Tensor pixels = images.images;
  if (pixels.dim() == 2)
    pixels = pixels.unsqueeze(-1);
  else if (!images.channels_last)
    pixels = pixels.movedim(-3, -1);
  if (pixels.dim() == 3) pixels = pixels.unsqueeze(0);
  return as_bytes(pixels.slice(0, 0, most));
}

at::Tensor mask_pixels(const at::Tensor& classes, std::int64_t most) {
  const at::Tensor three = classes.dim() == 2 ? classes.unsqueeze(0) : classes;
  const at::Tensor values = three.slice(0, 0, most).to(at::kLong).contiguous();
  at::Tensor bytes = at::empty({values.size(0), values.size(1), values.size(2), 3}, at::kByte);
  const auto* value = values.const_data_ptr<std::int64_t>();
  auto* byte = bytes.mutable_data_ptr<Byte>();
  for (std::int64_t i = 0; i < values.numel(); ++i) byte = std::ranges::copy(color_of(value[i]), byte).out;
  return bytes;
}

Pngs png_files(const at::Tensor& pixels) {
  const at::Tensor bytes = pixels.contiguous();
  Pngs pngs{.width = bytes.size(2), .height = bytes.size(1), .files = {}};
  const auto size = static_cast<std::size_t>(bytes.stride(0));
  for (std::int64_t i = 0; i < bytes.size(0); ++i) {
    const std::span image(bytes.const_data_ptr<Byte>() + static_cast<std::size_t>(i) * size, size);
    pngs.files.push_back(encoded(image, pngs.width, pngs.height, bytes.size(3)));
  }
  return pngs;
}

}  // namespace composer::util

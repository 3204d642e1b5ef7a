#include "composer/data/image/transforms.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/_upsample_bilinear2d_aa.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/upsample_nearest2d.h>

#include "composer/core/error.h"
#include "composer/data/image/images.h"
#include "composer/data/pixels.h"

namespace composer::data {
namespace detail {

void check_images(const char* who, const at::Tensor& images) {
  if (images.defined() && (images.dim() == 3 || images.dim() == 4) &&
      (images.scalar_type() == at::kByte || images.is_floating_point()) && images.size(-3) > 0 && images.size(-2) > 0 &&
      images.size(-1) > 0)
    return;
  throw DataError(who, ": expected images [C, H, W] or [N, C, H, W] of one pixel or more, uint8 or floats, got ",
                  images.defined() ? join(images.sizes(), " of ", images.scalar_type()) : "no tensor");
}

void check_size(const char* who, const ImageSize& size) {
  if (size.height >= 1 && size.width >= 0) return;
  throw ConfigError(who, ": size must be one or two numbers >= 1, got ", size.height, " x ", size.width);
}

void check_probability(const char* who, double p) {
  if (!(p >= 0 && p <= 1)) throw ConfigError(who, ": p must be from 0 to 1, got ", p);
}

void check_range(const char* who, const char* name, const Range& range, double low, double high) {
  if (!(range.low >= low && range.low <= range.high && range.high <= high))
    throw ConfigError(who, ": ", name, " must be a range within ", low, " to ", high, ", got ", range.low, " to ",
                      range.high);
}

at::Tensor part_of(const at::Tensor& images, std::int64_t top, std::int64_t left, ImageSize size) {
  return images.narrow(-2, top, size.height).narrow(-1, left, size.width);
}

at::Tensor resized(const at::Tensor& images, ImageSize size, Interpolation interpolation, bool antialias) {
  if (size_of(images) == size) return images;
  const bool one = images.dim() == 3;
  const at::Tensor batch = one ? images.unsqueeze(0) : images;
  const std::array<std::int64_t, 2> shape = {size.height, size.width};
  at::Tensor result;
  if (interpolation == Interpolation::NEAREST)
    result = at::upsample_nearest2d(batch, shape);
  else if (interpolation == Interpolation::BILINEAR)
    result =
        antialias ? at::_upsample_bilinear2d_aa(batch, shape, false) : at::upsample_bilinear2d(batch, shape, false);
  else
    result = antialias ? at::_upsample_bicubic2d_aa(batch, shape, false) : at::upsample_bicubic2d(batch, shape, false);
  return one ? result.squeeze(0) : result;
}

std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

std::int64_t below(RandomStream& random, std::int64_t bound) {
  return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound)));
}

}  // namespace detail

namespace {

using detail::below;
using detail::rounded;

struct Sides {
  std::int64_t left = 0, top = 0, right = 0, bottom = 0;
};

Sides sides_of(const std::vector<std::int64_t>& padding) {
  if (padding.empty()) return {};
  if (padding.size() == 1) return {padding[0], padding[0], padding[0], padding[0]};
  if (padding.size() == 2) return {padding[0], padding[1], padding[0], padding[1]};
  return {padding[0], padding[1], padding[2], padding[3]};
}

void check_padding(const char* who, const std::vector<std::int64_t>& padding) {
  if (padding.size() != 0 && padding.size() != 1 && padding.size() != 2 && padding.size() != 4)
    throw ConfigError(who, ": padding must be 1, 2 or 4 numbers, got ", padding.size());
  for (const std::int64_t side : padding)
    if (side < 0) throw ConfigError(who, ": padding must be >= 0, got ", side);
}

// The rows, or columns, of an image whose copies are the padded one.
at::Tensor sources_of(std::int64_t size, std::int64_t before, std::int64_t after, PadMode mode) {
  std::vector<std::int64_t> from;
  for (std::int64_t i = -before; i < size + after; ++i) {
    std::int64_t at = std::clamp<std::int64_t>(i, 0, size - 1);
    if (mode == PadMode::REFLECT && i < 0) at = -i;
    if (mode == PadMode::REFLECT && i >= size) at = 2 * (size - 1) - i;
    from.push_back(at);
  }
  return at::tensor(from, at::kLong);
}

at::Tensor padded(const char* who, const at::Tensor& images, const Sides& sides, PadMode mode, double fill) {
  const ImageSize size = detail::size_of(images);
  if (mode == PadMode::CONSTANT)
    return at::constant_pad_nd(images, {sides.left, sides.right, sides.top, sides.bottom},
                               images.scalar_type() == at::kByte ? std::clamp(fill, 0., 255.) : fill);
  if (mode == PadMode::REFLECT &&
      (std::max(sides.left, sides.right) >= size.width || std::max(sides.top, sides.bottom) >= size.height))
    throw DataError(who, ": an image of ", size.height, " x ", size.width,
                    " pixels is too small to be reflected so far");
  const at::Tensor rows = sources_of(size.height, sides.top, sides.bottom, mode).to(images.device());
  const at::Tensor columns = sources_of(size.width, sides.left, sides.right, mode).to(images.device());
  return images.index_select(-2, rows).index_select(-1, columns);
}

struct Area {
  std::int64_t top = 0, left = 0;
  ImageSize size;
};

// The part of an image that RandomResizedCrop takes. Whatever is drawn depends on the shape of the image, and hardly on
// its size, so that it is about the same part of one that was decoded smaller.
Area random_area(const RandomResizedCrop& crop, ImageSize whole, RandomStream& random) {
  constexpr int kTries = 10;
  const auto height = static_cast<double>(whole.height), width = static_cast<double>(whole.width);
  const Range log_ratio(std::log(crop.ratio.low), std::log(crop.ratio.high));
  for (int i = 0; i < kTries; ++i) {
    const double area = height * width * crop.scale.draw(random), ratio = std::exp(log_ratio.draw(random));
    const ImageSize size(rounded(std::sqrt(area / ratio)), rounded(std::sqrt(area * ratio)));
    if (size.height < 1 || size.height > whole.height || size.width < 1 || size.width > whole.width) continue;
    const std::int64_t top = below(random, whole.height - size.height + 1);
    return {top, below(random, whole.width - size.width + 1), size};
  }
  ImageSize size = whole;  // the middle, as far as the ratio allows
  const double ratio = width / height;
  if (ratio < crop.ratio.low) size.height = std::clamp<std::int64_t>(rounded(width / crop.ratio.low), 1, whole.height);
  if (ratio > crop.ratio.high) size.width = std::clamp<std::int64_t>(rounded(height * crop.ratio.high), 1, whole.width);
  return {(whole.height - size.height) / 2, (whole.width - size.width) / 2, size};
}

// A size of the whole image at which this part still has twice the pixels of its target in both directions: what is
// reduced by another two then looks the same.
ImageSize enough_for(ImageSize whole, ImageSize part, ImageSize target) {
  const double scale = 2 * std::max(static_cast<double>(target.height) / static_cast<double>(part.height),
                                    static_cast<double>(target.width) / static_cast<double>(part.width));
  if (scale >= 1) return whole;
  return {static_cast<std::int64_t>(std::ceil(static_cast<double>(whole.height) * scale)),
          static_cast<std::int64_t>(std::ceil(static_cast<double>(whole.width) * scale))};
}

// float(pixel) * scale + shift of uint8 images, with one of each or one for each channel, in planes.
at::Tensor scaled(const at::Tensor& images, const std::vector<float>& scales, const std::vector<float>& shifts) {
  const std::int64_t channels = images.size(-3), plane = images.size(-2) * images.size(-1);
  const std::int64_t number = images.dim() == 4 ? images.size(0) : 1;
  at::Tensor planes = images;
  if (!images.is_contiguous()) {
    const at::Tensor inner = images.movedim(-3, -1).contiguous();  // copies nothing if the channels are innermost
    planes = at::empty(images.sizes(), at::kByte);
    for (std::int64_t n = 0; n < number; ++n)
      detail::to_planes(inner.const_data_ptr<std::uint8_t>() + n * plane * channels,
                        planes.mutable_data_ptr<std::uint8_t>() + n * plane * channels, plane, channels);
  }
  at::Tensor result = at::empty(images.sizes(), at::kFloat);
  const auto* from = planes.const_data_ptr<std::uint8_t>();
  auto* to = result.mutable_data_ptr<float>();
  for (std::int64_t n = 0; n < number; ++n)
    for (std::int64_t c = 0; c < channels; ++c, from += plane, to += plane) {
      const auto i = scales.size() == 1 ? 0 : static_cast<std::size_t>(c);
      detail::pixels_to_float(from, to, plane, scales[i], shifts[i]);
    }
  return result;
}

at::Tensor by_channel(const std::vector<double>& values, const at::Tensor& images) {
  return at::tensor(values, at::kDouble).to(images.options()).view({-1, 1, 1});
}

void check_normalize(const Normalize& normalize) {
  if (normalize.mean.empty() || normalize.mean.size() != normalize.stddev.size())
    throw ConfigError("Normalize: needs one mean and one stddev, or one of each per channel; got ",
                      normalize.mean.size(), " and ", normalize.stddev.size());
  for (const double mean : normalize.mean)
    if (!std::isfinite(mean)) throw ConfigError("Normalize: mean must be finite, got ", mean);
  for (const double stddev : normalize.stddev)
    if (!(stddev > 0)) throw ConfigError("Normalize: stddev must be > 0, got ", stddev);
}

}  // namespace

void Resize::check() const {
  detail::check_size("Resize", size);
  if (max_size < 0 || (max_size > 0 && (!size.is_one_number() || max_size < size.height)))
    throw ConfigError("Resize: max_size must be at least size, which must be one number, got ", max_size);
}

ImageSize Resize::size_of(ImageSize whole) const {
  if (!size.is_one_number()) return size;
  const auto shorter = std::min(whole.height, whole.width), longer = std::max(whole.height, whole.width);
  std::int64_t new_shorter = size.height, new_longer = size.height * longer / shorter;
  if (max_size > 0 && new_longer > max_size) {
    new_shorter = std::max<std::int64_t>(max_size * new_shorter / new_longer, 1);
    new_longer = max_size;
  }
  return whole.height <= whole.width ? ImageSize(new_shorter, new_longer) : ImageSize(new_longer, new_shorter);
}

at::Tensor Resize::operator()(const at::Tensor& images) const {
  detail::check_images("Resize", images);
  return detail::resized(images, size_of(detail::size_of(images)), interpolation, antialias);
}

// Without antialiasing, the result depends on single pixels of the file, which a smaller image does not have.
ImageSize Resize::enough(ImageSize whole, RandomStream) const {
  if (!antialias || interpolation == Interpolation::NEAREST) return whole;
  return enough_for(whole, whole, size_of(whole));
}

void CenterCrop::check() const { detail::check_size("CenterCrop", size); }

at::Tensor CenterCrop::operator()(const at::Tensor& images) const {
  detail::check_images("CenterCrop", images);
  const auto [height, width] = std::pair(size.square().height, size.square().width);
  at::Tensor from = images;
  const std::int64_t down = std::max<std::int64_t>(height - images.size(-2), 0);
  const std::int64_t across = std::max<std::int64_t>(width - images.size(-1), 0);
  if (down > 0 || across > 0)
    from = padded("CenterCrop", images, {across / 2, down / 2, (across + 1) / 2, (down + 1) / 2}, PadMode::CONSTANT, 0);
  return detail::part_of(from, rounded(static_cast<double>(from.size(-2) - height) / 2),
                         rounded(static_cast<double>(from.size(-1) - width) / 2), {height, width});
}

void Pad::check() const {
  check_padding("Pad", padding);
  if (padding.empty()) throw ConfigError("Pad: padding must be 1, 2 or 4 numbers, got none");
}

at::Tensor Pad::operator()(const at::Tensor& images) const {
  detail::check_images("Pad", images);
  return padded("Pad", images, sides_of(padding), mode, fill);
}

void RandomCrop::check() const {
  detail::check_size("RandomCrop", size);
  check_padding("RandomCrop", padding);
}

at::Tensor RandomCrop::operator()(const at::Tensor& images, RandomStream& random) const {
  detail::check_images("RandomCrop", images);
  const ImageSize wanted = size.square();
  at::Tensor from = padding.empty() ? images : padded("RandomCrop", images, sides_of(padding), mode, fill);
  const std::int64_t down = std::max<std::int64_t>(wanted.height - from.size(-2), 0);
  const std::int64_t across = std::max<std::int64_t>(wanted.width - from.size(-1), 0);
  if ((down > 0 || across > 0) && !pad_if_needed)
    throw DataError("RandomCrop: an image of ", from.size(-2), " x ", from.size(-1), " pixels has no part of ",
                    wanted.height, " x ", wanted.width, "; resize it before, or set padding or pad_if_needed");
  if (down > 0 || across > 0) from = padded("RandomCrop", from, {across, down, across, down}, mode, fill);
  const std::int64_t top = below(random, from.size(-2) - wanted.height + 1);
  return detail::part_of(from, top, below(random, from.size(-1) - wanted.width + 1), wanted);
}

void RandomResizedCrop::check() const {
  detail::check_size("RandomResizedCrop", size);
  detail::check_range("RandomResizedCrop", "scale", scale, 1e-6, 1);
  detail::check_range("RandomResizedCrop", "ratio", ratio, 1e-3, 1e3);
}

at::Tensor RandomResizedCrop::operator()(const at::Tensor& images, RandomStream& random) const {
  detail::check_images("RandomResizedCrop", images);
  const Area area = random_area(*this, detail::size_of(images), random);
  return detail::resized(detail::part_of(images, area.top, area.left, area.size), size.square(), interpolation,
                         antialias);
}

ImageSize RandomResizedCrop::enough(ImageSize whole, RandomStream random) const {
  if (!antialias || interpolation == Interpolation::NEAREST) return whole;
  return enough_for(whole, random_area(*this, whole, random).size, size.square());
}

void RandomHorizontalFlip::check() const { detail::check_probability("RandomHorizontalFlip", p); }

at::Tensor RandomHorizontalFlip::operator()(const at::Tensor& images, RandomStream& random) const {
  detail::check_images("RandomHorizontalFlip", images);
  return random.uniform() < p ? images.flip({-1}) : images;
}

void RandomVerticalFlip::check() const { detail::check_probability("RandomVerticalFlip", p); }

at::Tensor RandomVerticalFlip::operator()(const at::Tensor& images, RandomStream& random) const {
  detail::check_images("RandomVerticalFlip", images);
  return random.uniform() < p ? images.flip({-2}) : images;
}

void RandomErasing::check() const {
  detail::check_probability("RandomErasing", p);
  detail::check_range("RandomErasing", "scale", scale, 0, 1);
  detail::check_range("RandomErasing", "ratio", ratio, 1e-3, 1e3);
}

at::Tensor RandomErasing::operator()(const at::Tensor& images, RandomStream& random) const {
  constexpr int kTries = 10;
  detail::check_images("RandomErasing", images);
  if (random.uniform() >= p) return images;
  const auto [height, width] = std::pair(images.size(-2), images.size(-1));
  const Range log_ratio(std::log(ratio.low), std::log(ratio.high));
  for (int i = 0; i < kTries; ++i) {
    const double area = static_cast<double>(height * width) * scale.draw(random);
    const double tall = std::exp(log_ratio.draw(random));
    const ImageSize size(rounded(std::sqrt(area * tall)), rounded(std::sqrt(area / tall)));
    if (size.height >= height || size.width >= width) continue;
    at::Tensor result = images.clone();
    const std::int64_t top = below(random, height - size.height + 1);
    detail::part_of(result, top, below(random, width - size.width + 1), size).fill_(value);
    return result;
  }
  return images;
}

at::Tensor ToFloat::operator()(const at::Tensor& images) const {
  detail::check_images("ToFloat", images);
  if (images.is_floating_point()) return images;
  return images.is_cpu() ? scaled(images, {1.0F / 255}, {0.0F}) : images.to(at::kFloat).div_(255);
}

at::Tensor normalized(const at::Tensor& images, const Normalize& normalize) {
  detail::check_images("Normalize", images);
  check_normalize(normalize);
  if (normalize.mean.size() != 1 && images.size(-3) != static_cast<std::int64_t>(normalize.mean.size()))
    throw ConfigError("Normalize: needs one mean and one stddev, or one of each per channel; got ",
                      normalize.mean.size(), " for images ", images.sizes());
  if (images.scalar_type() == at::kByte && images.is_cpu()) {
    std::vector<float> scales, shifts;
    for (std::size_t c = 0; c < normalize.mean.size(); ++c) {
      scales.push_back(static_cast<float>(1 / (255 * normalize.stddev[c])));
      shifts.push_back(static_cast<float>(-normalize.mean[c] / normalize.stddev[c]));
    }
    return scaled(images, scales, shifts);
  }
  const at::Tensor floats = ToFloat()(images);
  return floats.sub(by_channel(normalize.mean, floats)).div_(by_channel(normalize.stddev, floats));
}

Normalize imagenet_normalize() { return {.mean = {0.485, 0.456, 0.406}, .stddev = {0.229, 0.224, 0.225}}; }

Transform::Transform(Normalize normalize) {
  check_normalize(normalize);
  apply_ = [normalize = std::move(normalize)](const at::Tensor& images, RandomStream&) {
    return normalized(images, normalize);
  };
}

at::Tensor Transforms::operator()(const at::Tensor& images, RandomStream& random) const {
  at::Tensor result = images;
  for (const Transform& transform : list_) result = transform(result, random);
  return result;
}

bool Transforms::draws() const { return std::ranges::any_of(list_, &Transform::draws); }

at::Tensor Transforms::operator()(const at::Tensor& images) const {
  if (draws())
    throw ConfigError(
        "Transforms: some of these are random, and need a RandomStream: transforms(images, random); one that is made "
        "anew for each image, RandomStream(hash64(seed, epoch, index)), gives a resumed run the same images");
  RandomStream unused(0);
  return (*this)(images, unused);
}

ImageSize Transforms::enough(ImageSize whole, RandomStream random) const {
  if (list_.empty() || !list_.front().enough_) return whole;
  return list_.front().enough_(whole, random);
}

}  // namespace composer::data

#include "composer/data/image_pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/util/random.h"

namespace composer::data::detail {
namespace {

constexpr std::uint64_t kFlip = 1, kCrop = 2, kCutout = 3;

void check(const InMemoryOptions& options, const at::Tensor& images) {
  const auto& normalize = options.normalize;
  const bool one = normalize && normalize->mean.size() == 1;
  const bool needs_images = options.flip || options.crop_padding > 0 || options.cutout > 0 || options.channels_last;
  if (images.dim() != 4 && (needs_images || !one))
    throw ConfigError(
        "in_memory: flip, crop_padding, cutout, channels_last and normalize by channel need images "
        "[N, C, H, W], got ",
        images.sizes());
  if (!normalize) return;
  if (images.scalar_type() != at::kByte)
    throw ConfigError("in_memory: normalize requires uint8 pixels, but the data is of type ", images.scalar_type());
  const auto means = normalize->mean.size(), stddevs = normalize->stddev.size();
  if (means == 0 || means != stddevs || (!one && means != static_cast<std::size_t>(images.size(1))))
    throw ConfigError("in_memory: normalize needs one mean and one stddev, or one of each per channel; got ", means,
                      " and ", stddevs, " for data ", images.sizes());
  for (double mean : normalize->mean)
    if (!std::isfinite(mean)) throw ConfigError("in_memory: normalize.mean must be finite, got ", mean);
  for (double stddev : normalize->stddev)
    if (!(stddev > 0)) throw ConfigError("in_memory: normalize.stddev must be > 0, got ", stddev);
}

// The same grid for values of another size.
PixelGrid resized(PixelGrid grid, std::size_t from, std::size_t to) {
  grid.pixel_bytes = grid.pixel_bytes / static_cast<std::int64_t>(from) * static_cast<std::int64_t>(to);
  return grid;
}

}  // namespace

ImagePass::ImagePass(const InMemoryOptions& options, const at::Tensor& images)
    : flip_(options.flip), padding_(options.crop_padding), cutout_(options.cutout) {
  check(options, images);
  const auto value_bytes = static_cast<std::int64_t>(images.element_size());
  bool interleaved = false;
  if (images.dim() == 4) {
    interleaved = images.suggest_memory_format() == at::MemoryFormat::ChannelsLast && images.size(1) > 1;
    grid_ = {.planes = interleaved ? 1 : images.size(1),
             .height = images.size(2),
             .width = images.size(3),
             .pixel_bytes = value_bytes * (interleaved ? images.size(1) : 1)};
  } else {
    grid_ = {.width = images.numel() / images.size(0), .pixel_bytes = value_bytes};
  }
  if (!options.normalize) return;
  for (std::size_t c = 0; c < options.normalize->mean.size(); ++c) {
    const double mean = options.normalize->mean[c], stddev = options.normalize->stddev[c];
    scales_.push_back(static_cast<float>(1 / (255 * stddev)));
    shifts_.push_back(static_cast<float>(-mean / stddev));
  }
  if (!interleaved || scales_.size() == 1) return;
  for (std::int64_t x = 0; x < grid_.width; ++x) {
    row_scales_.insert(row_scales_.end(), scales_.begin(), scales_.end());
    row_shifts_.insert(row_shifts_.end(), shifts_.begin(), shifts_.end());
  }
}

Draw ImagePass::draw(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) const {
  Draw draw;
  draw.flip = flip_ && hash64(seed, kFlip, epoch, sample) >> 63;
  if (padding_ > 0) {
    RandomStream random(hash64(seed, kCrop, epoch, sample));
    const auto places = static_cast<std::uint64_t>(2 * padding_ + 1);
    draw.down = static_cast<std::int64_t>(random.below(places)) - padding_;
    draw.right = static_cast<std::int64_t>(random.below(places)) - padding_;
  }
  if (cutout_ > 0) {
    RandomStream random(hash64(seed, kCutout, epoch, sample));
    const auto place = [&](std::int64_t size, std::int64_t& from, std::int64_t& to) {
      const std::int64_t begin =
          static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size))) - cutout_ / 2;
      from = std::max<std::int64_t>(begin, 0);
      to = std::min(begin + cutout_, size);
    };
    place(grid_.height, draw.top, draw.bottom);
    place(grid_.width, draw.left, draw.end);
  }
  return draw;
}

void ImagePass::apply(const void* from, void* to, const Draw& draw, Scratch& scratch) const {
  const bool shifts = draw.down != 0 || draw.right != 0, converts = !scales_.empty();
  const auto bytes = static_cast<std::size_t>(grid_.bytes());
  if (bytes == 0) return;
  if (draws() && scratch.size() < 2 * bytes) scratch.resize(2 * bytes);
  if (draw.flip) {
    void* mirrored = shifts || converts ? scratch.data() : to;
    mirror(from, mirrored, grid_);
    from = mirrored;
  }
  if (shifts) {
    void* shifted = converts ? scratch.data() + bytes : to;
    // The window is cut out before mirroring, so in a mirrored image it is shifted to the other side.
    shift(from, shifted, grid_, draw.down, draw.flip ? -draw.right : draw.right);
    from = shifted;
  }
  if (converts) {
    convert(static_cast<const std::uint8_t*>(from), static_cast<float*>(to));
  } else if (from != to) {
    std::memcpy(to, from, bytes);
  }
  if (cutout_ > 0)
    blacken(to, converts ? resized(grid_, sizeof(std::uint8_t), sizeof(float)) : grid_, draw.top, draw.bottom,
            draw.left, draw.end);
}

void ImagePass::convert(const std::uint8_t* from, float* to) const {
  if (!row_scales_.empty()) {
    pixels_to_float(from, to, grid_.height, grid_.row_bytes(), row_scales_.data(), row_shifts_.data());
  } else if (scales_.size() == 1) {
    pixels_to_float(from, to, grid_.bytes(), scales_[0], shifts_[0]);
  } else {
    const std::int64_t plane = grid_.height * grid_.width;
    for (std::size_t c = 0; c < scales_.size(); ++c, from += plane, to += plane)
      pixels_to_float(from, to, plane, scales_[c], shifts_[c]);
  }
}

}  // namespace composer::data::detail

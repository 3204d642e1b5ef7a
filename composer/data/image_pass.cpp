#include "composer/data/image_pass.h"

#include <cstring>
#include <utility>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/pixels.h"
#include "composer/util/random.h"

namespace composer::data::detail {
namespace {

constexpr std::uint64_t kFlip = 1;

void check(const InMemoryOptions& options, const at::Tensor& images) {
  const auto& normalize = options.normalize;
  const bool one = normalize && normalize->mean.size() == 1;
  if (images.dim() != 4 && (options.flip || options.channels_last || !one))
    throw ConfigError("in_memory: flip, channels_last and normalize by channel need images [N, C, H, W], got ",
                      images.sizes());
  if (!normalize) return;
  if (images.scalar_type() != at::kByte)
    throw ConfigError("in_memory: normalize is for uint8 pixels, the data is of type ", images.scalar_type());
  const auto means = normalize->mean.size(), stddevs = normalize->stddev.size();
  if (means == 0 || means != stddevs || (!one && means != static_cast<std::size_t>(images.size(1))))
    throw ConfigError("in_memory: normalize needs one mean and one stddev, or one of each per channel; got ", means,
                      " and ", stddevs, " for data ", images.sizes());
  for (double stddev : normalize->stddev)
    if (!(stddev > 0)) throw ConfigError("in_memory: normalize.stddev must be > 0, got ", stddev);
}

}  // namespace

ImagePass::ImagePass(const InMemoryOptions& options, const at::Tensor& images)
    : flip_(options.flip), seed_(options.seed), pixel_bytes_(static_cast<std::int64_t>(images.element_size())) {
  check(options, images);
  if (images.dim() == 4) {
    channels_ = images.size(1), height_ = images.size(2), width_ = images.size(3);
    interleaved_ = images.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  } else {
    width_ = images.numel() / images.size(0);
  }
  if (!options.normalize) return;
  for (std::size_t c = 0; c < options.normalize->mean.size(); ++c) {
    const double mean = options.normalize->mean[c], stddev = options.normalize->stddev[c];
    scales_.push_back(static_cast<float>(1 / (255 * stddev)));
    shifts_.push_back(static_cast<float>(-mean / stddev));
  }
}

bool ImagePass::flips(std::int64_t epoch, std::int64_t sample) const {
  return flip_ && hash64(seed_, kFlip, epoch, sample) >> 63;
}

void ImagePass::apply(const void* from, void* to, bool flipped) const {
  const std::int64_t plane = height_ * width_, values = channels_ * plane;
  const auto* pixels = static_cast<const std::uint8_t*>(from);
  auto* floats = static_cast<float*>(to);
  if (scales_.empty()) {
    std::memcpy(to, from, static_cast<std::size_t>(values * pixel_bytes_));
  } else if (scales_.size() == 1) {
    pixels_to_float(pixels, floats, values, scales_[0], shifts_[0]);
  } else if (interleaved_) {
    pixels_to_float(pixels, floats, plane, channels_, scales_.data(), shifts_.data());
  } else {
    for (std::size_t c = 0; c < scales_.size(); ++c, pixels += plane, floats += plane)
      pixels_to_float(pixels, floats, plane, scales_[c], shifts_[c]);
  }
  if (!flipped) return;
  const std::int64_t bytes = scales_.empty() ? pixel_bytes_ : static_cast<std::int64_t>(sizeof(float));
  if (interleaved_) {
    mirror_rows(to, height_, width_, channels_ * bytes);
  } else {
    mirror_rows(to, channels_ * height_, width_, bytes);
  }
}

at::Tensor ImagePass::apply(at::Tensor images, const at::Tensor& flipped) const {
  if (!scales_.empty()) {
    std::vector<std::int64_t> shape(static_cast<std::size_t>(images.dim()), 1);
    if (images.dim() > 1) shape[1] = -1;
    const auto by_channel = [&](const std::vector<float>& numbers) {
      return at::tensor(numbers).view(shape).to(images.device());
    };
    images = images.to(at::kFloat);
    if (scales_.size() == 1) {
      images.mul_(scales_[0]).add_(shifts_[0]);
    } else {
      images.mul_(by_channel(scales_)).add_(by_channel(shifts_));
    }
  }
  return flipped.defined() ? at::where(flipped.view({-1, 1, 1, 1}), images.flip({3}), images) : images;
}

}  // namespace composer::data::detail

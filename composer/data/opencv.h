#pragma once
// Tensors of OpenCV's images. Include OpenCV's header before or after; this one needs none.
#include <concepts>
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/data/memory.h"

namespace composer::data {

// cv::Mat, or a cv::Mat_ of a type.
template <class M>
concept OpenCvMat = requires(const M& image) {
  { image.dims } -> std::convertible_to<int>;
  { image.rows } -> std::convertible_to<int>;
  { image.cols } -> std::convertible_to<int>;
  { image.data } -> std::convertible_to<const unsigned char*>;
  { image.step[0] } -> std::convertible_to<std::size_t>;
  { image.depth() } -> std::same_as<int>;
  { image.channels() } -> std::same_as<int>;
};

namespace detail {

// What is known of an image of OpenCV: `depth` as in CV_8U, `step` in bytes.
struct ImageMemory {
  const unsigned char* data;
  int dims, rows, cols, depth, channels;
  std::size_t step;
};

// [H, W, C], shared. Throws DataError for an image that is empty, or has other dimensions or an unknown depth.
COMPOSER_EXPORT at::Tensor view_of_image(const ImageMemory& image, std::shared_ptr<const void> keep_alive);
// [C, H, W], copied; `reverse` exchanges the first and the third channel.
COMPOSER_EXPORT at::Tensor copy_of_image(const ImageMemory& image, bool reverse);

template <OpenCvMat M>
ImageMemory memory_of(const M& image) {
  return {image.data, image.dims, image.rows, image.cols, image.depth(), image.channels(), image.step[0]};
}

}  // namespace detail

// A copy of the image as models take it, [C, H, W], with the channels in the image's order: BGR, if it is a colour
// image that cv::imread or cv::VideoCapture has read.
template <OpenCvMat M>
at::Tensor from(const M& image) {
  return detail::copy_of_image(detail::memory_of(image), false);
}

// The same of a BGR or BGRA image, with the channels RGB or RGBA, which ready models take. Throws DataError for an
// image of 1 or 2 channels.
template <OpenCvMat M>
at::Tensor from_bgr(const M& image) {
  return detail::copy_of_image(detail::memory_of(image), true);
}

// Shares the image's memory, [H, W, C], also of a part of an image, whose rows do not follow each other. The tensor
// keeps a header of the image, so its memory lives as long, but OpenCV may write a next frame into it:
// view(image.clone()) rules that out. An image around memory of yours does not keep that alive.
template <OpenCvMat M>
at::Tensor view(const M& image) {
  return detail::view_of_image(detail::memory_of(image), std::make_shared<const M>(image));
}

}  // namespace composer::data

#include "composer/data/opencv.h"

#include <array>
#include <cstddef>
#include <utility>

#include <ATen/ops/cat.h>

#include "composer/core/error.h"

namespace composer::data::detail {
namespace {

// By OpenCV's depth: CV_8U, CV_8S, CV_16U, CV_16S, CV_32S, CV_32F, CV_64F, CV_16F.
constexpr std::array kDepths{at::kByte, at::kChar,  at::kUInt16, at::kShort,
                             at::kInt,  at::kFloat, at::kDouble, at::kHalf};

}  // namespace

at::Tensor view_of_image(const ImageMemory& image, std::shared_ptr<const void> keep_alive) {
  if (!image.data || image.rows < 1 || image.cols < 1)
    throw DataError("cv::Mat: the image is empty; cv::imread() returns such a one for a file that it cannot read");
  if (image.dims != 2 || image.channels < 1)
    throw DataError("cv::Mat: has ", image.dims, " dimensions, and an image has 2");
  if (image.depth < 0 || static_cast<std::size_t>(image.depth) >= kDepths.size())
    throw DataError("cv::Mat: has the unknown depth ", image.depth);
  const at::ScalarType type = kDepths[static_cast<std::size_t>(image.depth)];
  const auto bytes = static_cast<std::int64_t>(c10::elementSize(type));
  const auto step = static_cast<std::int64_t>(image.step);
  if (step % bytes != 0 || step < bytes * image.cols * image.channels)
    throw DataError("cv::Mat: a row of ", image.cols, " pixels has a step of ", step, " bytes");
  return strided_over(image.data, type, {image.rows, image.cols, image.channels}, {step / bytes, image.channels, 1},
                      std::move(keep_alive));
}

at::Tensor copy_of_image(const ImageMemory& image, bool reverse) {
  const at::Tensor planes = view_of_image(image, {}).permute({2, 0, 1});
  if (!reverse) return planes.clone(at::MemoryFormat::Contiguous);
  if (image.channels != 3 && image.channels != 4)
    throw DataError("from_bgr: the image has ", image.channels, " channels, and BGR has 3 or, with A, 4");
  return at::cat({planes.slice(0, 2, 3), planes.slice(0, 1, 2), planes.slice(0, 0, 1), planes.slice(0, 3)});
}

}  // namespace composer::data::detail

#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/data/in_memory.h"
#include "composer/data/pixels.h"

namespace composer::data::detail {

// The random choices for one image.
struct Draw {
  bool flip = false;
  std::int64_t down = 0, right = 0;                     // top left corner of the crop in the image
  std::int64_t top = 0, bottom = 0, left = 0, end = 0;  // cutout: rows [top, bottom), columns [left, end)
};

// The transforms that in_memory applies to images while it assembles a batch.
class ImagePass {
 public:
  using Scratch = std::vector<std::byte>;

  ImagePass() = default;  // no transforms
  // Throws ConfigError if the options are invalid for these images.
  ImagePass(const InMemoryOptions& options, const at::Tensor& images);

  bool empty() const { return scales_.empty() && !draws(); }
  bool draws() const { return flip_ || padding_ > 0 || cutout_ > 0; }
  at::ScalarType type_after(at::ScalarType type) const { return scales_.empty() ? type : at::kFloat; }
  Draw draw(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) const;

  // Transforms one image on the host, in the memory format of the given images. The scratch buffer saves allocations.
  void apply(const void* from, void* to, const Draw& draw, Scratch& scratch) const;

  // Like the function above, for a batch on any device. `draws` is the [N, 7] result of table(), on that device;
  // undefined if nothing is random.
  at::Tensor apply(at::Tensor images, const at::Tensor& draws) const;
  // The random choices for these samples, in this order, on the host.
  at::Tensor table(std::uint64_t seed, std::int64_t epoch, const std::vector<std::int64_t>& samples) const;

 private:
  void convert(const std::uint8_t* from, float* to) const;
  at::Tensor move(const at::Tensor& images, const at::Tensor& draws) const;
  at::Tensor normalize(const at::Tensor& images) const;
  at::Tensor cut(const at::Tensor& images, const at::Tensor& draws) const;

  bool flip_ = false;
  std::int64_t padding_ = 0, cutout_ = 0;
  std::vector<float> scales_, shifts_;          // one, or one for each channel; empty: no normalization
  std::vector<float> row_scales_, row_shifts_;  // one for each value of a row, if channels are innermost and differ
  PixelGrid grid_;
};

}  // namespace composer::data::detail

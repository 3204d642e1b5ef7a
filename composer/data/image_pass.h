#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/data/in_memory.h"

namespace composer::data::detail {

// What in_memory does to images while a batch is put together: pixels to floats, mirroring.
class ImagePass {
 public:
  ImagePass() = default;  // none
  // Throws ConfigError if the options do not fit the images.
  ImagePass(const InMemoryOptions& options, const at::Tensor& images);

  bool empty() const { return scales_.empty() && !flip_; }
  at::ScalarType type_after(at::ScalarType type) const { return scales_.empty() ? type : at::kFloat; }
  bool flips(std::int64_t epoch, std::int64_t sample) const;
  // One image on the host, in the memory format of the images given.
  void apply(const void* from, void* to, bool flipped) const;
  // A batch on any device; `flipped` is [N] of bool there, undefined if nothing is ever mirrored.
  at::Tensor apply(at::Tensor images, const at::Tensor& flipped) const;

 private:
  bool flip_ = false;
  std::uint64_t seed_ = 0;
  std::vector<float> scales_, shifts_;  // by channel, or one of each; none: stays as it is
  std::int64_t channels_ = 1, height_ = 1, width_ = 1;
  std::int64_t pixel_bytes_ = 1;  // of one value
  bool interleaved_ = false;      // channels innermost
};

}  // namespace composer::data::detail

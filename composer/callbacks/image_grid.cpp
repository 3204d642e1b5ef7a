#include "composer/callbacks/image_grid.h"

#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include "composer/util/png.h"

namespace composer::callbacks {
namespace {

constexpr std::int64_t kLine = 2;  // pixels between images

// Converts gray and RGBA to RGB.
at::Tensor as_rgb(const at::Tensor& pixels) {
  return pixels.size(3) == 1 ? pixels.expand({-1, -1, -1, 3}) : pixels.slice(3, 0, 3);
}

// The smallest number of columns with no more rows than columns.
std::int64_t columns_for(std::int64_t count) {
  std::int64_t columns = 1;
  while (columns * columns < count) ++columns;
  return columns;
}

}  // namespace

at::Tensor image_grid(const LogImages& images) {
  const at::Tensor inputs = util::image_pixels(images, images.images.size(0));
  std::vector<at::Tensor> tiles = {images.masks.empty() ? inputs : as_rgb(inputs)};
  for (const LogMask& mask : images.masks) tiles.push_back(util::mask_pixels(mask.classes, mask.classes.size(0)));
  const at::Tensor pixels = at::cat(tiles, 2);  // [N, H, total W, C]
  const std::int64_t count = pixels.size(0), height = pixels.size(1), width = pixels.size(2);
  const std::int64_t columns = columns_for(count), rows = (count + columns - 1) / columns;
  at::Tensor grid =
      at::zeros({rows * (height + kLine) - kLine, columns * (width + kLine) - kLine, pixels.size(3)}, pixels.options());
  if (pixels.size(3) == 4) grid.select(2, 3).fill_(255);
  for (std::int64_t i = 0; i < count; ++i)
    grid.narrow(0, i / columns * (height + kLine), height)
        .narrow(1, i % columns * (width + kLine), width)
        .copy_(pixels[i]);
  return grid;
}

}  // namespace composer::callbacks

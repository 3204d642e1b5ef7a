#include <array>
#include <cmath>
#include <numbers>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/grid_sampler_2d.h>

#include "composer/core/error.h"
#include "composer/data/image/images.h"
#include "composer/data/image/transforms.h"

namespace composer::data {
namespace {

struct Affine {
  double angle = 0;  // clockwise, degrees
  double right = 0, down = 0, scale = 1, shear = 0;
};

// Where a pixel of the result comes from, both as distances from the middle of the image: two rows of a matrix.
std::array<double, 6> inverse_of(const Affine& affine) {
  const double turn = affine.angle * std::numbers::pi / 180, shear = affine.shear * std::numbers::pi / 180;
  const double a = std::cos(turn), b = -std::cos(turn) * std::tan(shear) - std::sin(turn);
  const double c = std::sin(turn), d = -std::sin(turn) * std::tan(shear) + std::cos(turn);
  std::array<double, 6> inverse = {d / affine.scale, -b / affine.scale, 0, -c / affine.scale, a / affine.scale, 0};
  inverse[2] = -inverse[0] * affine.right - inverse[1] * affine.down;
  inverse[5] = -inverse[3] * affine.right - inverse[4] * affine.down;
  return inverse;
}

at::Tensor moved(const at::Tensor& images, const Affine& affine, Interpolation interpolation, double fill) {
  constexpr std::int64_t kBilinear = 0, kNearest = 1, kBicubic = 2, kZeros = 0;
  const std::int64_t height = images.size(-2), width = images.size(-1);
  const std::array<double, 6> from = inverse_of(affine);
  at::Tensor grid = at::empty({1, height, width, 2}, at::kFloat);
  auto* place = grid.mutable_data_ptr<float>();
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x, place += 2) {
      const double across = static_cast<double>(x) + 0.5 - static_cast<double>(width) / 2;
      const double along = static_cast<double>(y) + 0.5 - static_cast<double>(height) / 2;
      place[0] = static_cast<float>((from[0] * across + from[1] * along + from[2]) / (static_cast<double>(width) / 2));
      place[1] = static_cast<float>((from[3] * across + from[4] * along + from[5]) / (static_cast<double>(height) / 2));
    }
  const bool one = images.dim() == 3;
  at::Tensor batch = (one ? images.unsqueeze(0) : images).to(at::kFloat);
  if (fill != 0) batch = batch.sub(fill);  // outside of the image, 0 is taken
  const std::int64_t mode = interpolation == Interpolation::NEAREST    ? kNearest
                            : interpolation == Interpolation::BILINEAR ? kBilinear
                                                                       : kBicubic;
  grid = grid.to(images.device()).expand({batch.size(0), height, width, 2});
  at::Tensor result = at::grid_sampler_2d(batch, grid, mode, kZeros, false);
  if (fill != 0) result.add_(fill);
  if (images.scalar_type() == at::kByte) result.round_().clamp_(0, 255);
  result = result.to(images.scalar_type());
  return one ? result.squeeze(0) : result;
}

Range both_ways(const Range& range) { return range.one_number ? Range(-range.low, range.low) : range; }

void check_angle(const char* who, const char* name, const Range& range, double most) {
  if (range.one_number && !(range.low >= 0)) throw ConfigError(who, ": ", name, " must be >= 0, got ", range.low);
  detail::check_range(who, name, both_ways(range), -most, most);
}

}  // namespace

void RandomAffine::check() const {
  check_angle("RandomAffine", "degrees", degrees, 1e6);
  check_angle("RandomAffine", "shear", shear, 89);
  detail::check_range("RandomAffine", "scale", scale, 1e-3, 1e3);
  for (const double share : {translate_x, translate_y})
    if (!(share >= 0 && share <= 1))
      throw ConfigError("RandomAffine: translate_x and translate_y must be from 0 to 1, got ", share);
}

at::Tensor RandomAffine::operator()(const at::Tensor& images, RandomStream& random) const {
  detail::check_images("RandomAffine", images);
  Affine affine;
  affine.angle = both_ways(degrees).draw(random);
  const double right = translate_x * static_cast<double>(images.size(-1));
  const double down = translate_y * static_cast<double>(images.size(-2));
  affine.right = std::nearbyint(Range(-right, right).draw(random));
  affine.down = std::nearbyint(Range(-down, down).draw(random));
  affine.scale = scale.draw(random);
  affine.shear = both_ways(shear).draw(random);
  return moved(images, affine, interpolation, fill);
}

void RandomRotation::check() const { check_angle("RandomRotation", "degrees", degrees, 1e6); }

at::Tensor RandomRotation::operator()(const at::Tensor& images, RandomStream& random) const {
  detail::check_images("RandomRotation", images);
  return moved(images, {.angle = -both_ways(degrees).draw(random)}, interpolation, fill);
}

}  // namespace composer::data

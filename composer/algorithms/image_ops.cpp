#include "composer/algorithms/image_ops.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/replication_pad2d.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"

namespace composer::algorithms {
namespace {

constexpr std::int64_t kLevels = 256;

// Returns one number for each image, in a shape that broadcasts to [N, C, H, W].
at::Tensor per_image(const std::vector<double>& values, const at::Tensor& images, at::ScalarType type) {
  return at::tensor(values, at::kDouble).to(type).to(images.device(), /*non_blocking=*/true).view({-1, 1, 1, 1});
}

at::Tensor autocontrast(const at::Tensor& images) {
  const at::Tensor low = images.amin({2, 3}, true), high = images.amax({2, 3}, true);
  const at::Tensor range = high.sub(low).to(at::kDouble);
  const at::Tensor scale = at::full_like(range, 255).div_(range.clamp_min(1));
  const at::Tensor stretched =
      images.to(at::kDouble).mul_(scale).sub_(low.to(at::kDouble).mul_(scale)).clamp_(0, 255).to(at::kByte);
  return at::where(range > 0, stretched, images);
}

at::Tensor equalize(const at::Tensor& images) {
  const std::int64_t rows = images.size(0) * images.size(1);
  const at::Tensor pixels = images.reshape({rows, -1}).to(at::kLong);
  const at::Tensor histogram =
      at::zeros({rows, kLevels}, pixels.options()).scatter_add_(1, pixels, at::ones_like(pixels));
  const at::Tensor of_brightest = histogram.gather(1, pixels.amax(1, true));
  const at::Tensor step = (pixels.size(1) - of_brightest).floor_divide_(255), divisor = step.clamp_min(1);
  const at::Tensor darker = histogram.cumsum(1).sub_(histogram);
  const at::Tensor table = darker.add_(divisor.floor_divide(2)).floor_divide_(divisor).clamp_max_(255);
  return at::where(step > 0, table.gather(1, pixels), pixels).to(at::kByte).view_as(images);
}

at::Tensor posterize(const at::Tensor& images, const std::vector<double>& bits) {
  std::vector<double> masks;
  for (const double kept : bits) masks.push_back(static_cast<double>(kLevels - (kLevels >> static_cast<int>(kept))));
  return images.bitwise_and(per_image(masks, images, at::kByte));
}

at::Tensor solarize(const at::Tensor& images, const std::vector<double>& thresholds) {
  return at::where(images < per_image(thresholds, images, at::kShort), images, images.bitwise_not());
}

// Maps a position in the result to the position in the image: x is a * x + b * y + c, and y is d * x + e * y + f.
struct Affine {
  double a = 1, b = 0, c = 0, d = 0, e = 1, f = 0;
};

Affine rotation(double degrees, double height, double width) {
  const double turn = std::fmod(std::fmod(degrees, 360) + 360, 360), angle = -turn * std::numbers::pi / 180;
  const auto rounded = [](double x) { return std::nearbyint(x * 1e15) / 1e15; };  // makes 90 degrees exact
  Affine m{.a = rounded(std::cos(angle)), .b = rounded(std::sin(angle))};
  m.d = rounded(-std::sin(angle)), m.e = m.a;
  m.c = m.a * (-width / 2) + m.b * (-height / 2) + width / 2;
  m.f = m.d * (-width / 2) + m.e * (-height / 2) + height / 2;
  return m;
}

Affine movement(const ImageChange& change, double height, double width) {
  const double value = change.value;
  if (change.op == ImageOp::ROTATE) return rotation(value, height, width);
  if (change.op == ImageOp::SHEAR_X) return {.b = value};
  if (change.op == ImageOp::SHEAR_Y) return {.d = value};
  if (change.op == ImageOp::TRANSLATE_X) return {.c = value};
  return {.f = value};
}

// Computes in double, because the results are truncated to whole numbers: 0.9999999 would become 0.
at::Tensor move_pixels(const at::Tensor& images, const std::vector<ImageChange>& changes) {
  const std::int64_t samples = images.size(0), channels = images.size(1), height = images.size(2),
                     width = images.size(3);
  std::vector<double> numbers;
  for (const ImageChange& change : changes) {
    const Affine m = movement(change, static_cast<double>(height), static_cast<double>(width));
    for (const double number : {m.a, m.b, m.c, m.d, m.e, m.f}) numbers.push_back(number);
  }
  const at::Tensor matrix =
      at::tensor(numbers, at::kDouble).to(images.device(), /*non_blocking=*/true).view({samples, 6, 1, 1});
  const at::TensorOptions options = matrix.options();
  const at::Tensor x = at::arange(width, options).add_(0.5).view({1, 1, width}),
                   y = at::arange(height, options).add_(0.5).view({1, height, 1});
  const auto from = [&](std::int64_t first) {  // [samples, height, width]
    return matrix.select(1, first).mul(x).add(matrix.select(1, first + 1).mul(y)).add_(matrix.select(1, first + 2));
  };
  at::Tensor column = from(0), row = from(3);
  const at::Tensor inside = (column >= 0)
                                .logical_and_(column < static_cast<double>(width))
                                .logical_and_(row >= 0)
                                .logical_and_(row < static_cast<double>(height));
  column.sub_(0.5).clamp_(-1, static_cast<double>(width)), row.sub_(0.5).clamp_(-1, static_cast<double>(height));
  const at::Tensor left = column.floor(), top = row.floor();
  const at::Tensor to_right = column.sub_(left).unsqueeze(1), down = row.sub_(top).unsqueeze(1);
  // Repeats the pixels at the edges in a frame, so that one index finds all four pixels around a position.
  const at::Tensor framed = at::replication_pad2d(images.to(at::kDouble), {1, 1, 1, 1}).view({samples, channels, -1});
  const std::int64_t line = width + 2, places = framed.size(2);
  const at::Tensor index = top.add(1)
                               .mul_(static_cast<double>(line))
                               .add_(left)
                               .add_(1)
                               .to(at::kLong)
                               .clamp_(0, places - line - 2)
                               .view({samples, 1, -1})
                               .expand({samples, channels, height * width});
  const auto pixels = [&](std::int64_t distance) {
    return framed.narrow(2, distance, places - distance).gather(2, index).view_as(images);
  };
  const auto between = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& share) {
    return b.sub(a).mul_(share).add_(a);
  };
  const at::Tensor above = between(pixels(0), pixels(1), to_right),
                   below = between(pixels(line), pixels(line + 1), to_right);
  return between(above, below, down).mul_(inside.unsqueeze(1)).to(at::kByte);
}

at::Tensor blend(const at::Tensor& without, const at::Tensor& images, const std::vector<double>& factors) {
  return images.to(at::kFloat)
      .sub_(without)
      .mul_(per_image(factors, images, at::kFloat))
      .add_(without)
      .clamp_(0, 255)
      .to(at::kByte);
}

// Luma in float32, [N, 1, H, W]. It is exact, because all sums are whole numbers below 2^24.
at::Tensor gray(const at::Tensor& images) {
  if (images.size(1) == 1) return images.to(at::kFloat);
  const at::Tensor weights =
      at::tensor({19595., 38470., 7471.}, at::kFloat).to(images.device(), true).view({1, 3, 1, 1});
  return images.mul(weights).sum(1, /*keepdim=*/true).add_(32768).mul_(1. / 65536).floor_();
}

at::Tensor blurred(const at::Tensor& images) {
  at::Tensor smooth = images.to(at::kFloat);
  if (images.size(2) < 3 || images.size(3) < 3) return smooth;
  at::Tensor inner = smooth.slice(2, 1, -1).slice(3, 1, -1);
  inner.copy_(at::avg_pool2d(smooth, {3, 3}, {1, 1}, {0, 0}, false, true, /*divisor_override=*/1)
                  .add_(inner, 4)
                  .div_(13)
                  .add_(0.5)
                  .floor_());
  return smooth;
}

at::Tensor enhance(ImageOp op, const at::Tensor& images, const std::vector<double>& factors) {
  if (op == ImageOp::COLOR) return blend(gray(images), images, factors);
  if (op == ImageOp::SHARPNESS) return blend(blurred(images), images, factors);
  const at::Tensor black = at::zeros({}, images.options().dtype(at::kFloat));
  if (op == ImageOp::BRIGHTNESS) return blend(black, images, factors);
  const at::Tensor mean =
      gray(images).sum({1, 2, 3}, true, at::kDouble).div_(static_cast<double>(images.size(2) * images.size(3)));
  return blend(mean.add_(0.5).floor_().to(at::kFloat), images, factors);
}

bool moves_pixels(ImageOp op) {
  return op == ImageOp::ROTATE || op == ImageOp::SHEAR_X || op == ImageOp::SHEAR_Y || op == ImageOp::TRANSLATE_X ||
         op == ImageOp::TRANSLATE_Y;
}

// Changes images that all have the same operation, or whose operations all move pixels.
at::Tensor change_alike(const at::Tensor& images, const std::vector<ImageChange>& changes) {
  const ImageOp op = changes.front().op;
  if (moves_pixels(op)) return move_pixels(images, changes);
  std::vector<double> values;
  for (const ImageChange& change : changes) values.push_back(change.value);
  switch (op) {
    case ImageOp::AUTOCONTRAST:
      return autocontrast(images);
    case ImageOp::EQUALIZE:
      return equalize(images);
    case ImageOp::POSTERIZE:
      return posterize(images, values);
    case ImageOp::SOLARIZE:
      return solarize(images, values);
    default:
      return enhance(op, images, values);
  }
}

struct Group {
  std::vector<std::int64_t> indices;
  std::vector<ImageChange> changes;
};

}  // namespace

const char* to_string(ImageOp op) {
  constexpr const char* kNames[] = {"none",     "autocontrast", "equalize",   "posterize",   "rotate",
                                    "solarize", "shear_x",      "shear_y",    "translate_x", "translate_y",
                                    "color",    "contrast",     "brightness", "sharpness"};
  return kNames[static_cast<std::size_t>(op)];
}

at::Tensor change_images(const at::Tensor& images, const std::vector<ImageChange>& changes) {
  if (images.scalar_type() != at::kByte || images.dim() != 4 || (images.size(1) != 1 && images.size(1) != 3))
    throw DataError("change_images: needs uint8 [N, C, H, W] with one or three channels, got ", images.sizes(), " of ",
                    images.scalar_type());
  if (static_cast<std::int64_t>(changes.size()) != images.size(0))
    throw DataError("change_images: needs a change for each of the ", images.size(0), " images, got ", changes.size());
  std::map<ImageOp, Group> groups;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const ImageOp op = changes[i].op;
    if (op == ImageOp::NONE || (op == ImageOp::COLOR && images.size(1) == 1)) continue;
    Group& group = groups[moves_pixels(op) ? ImageOp::ROTATE : op];
    group.indices.push_back(static_cast<std::int64_t>(i));
    group.changes.push_back(changes[i]);
  }
  at::Tensor changed = images.clone(at::MemoryFormat::Contiguous);
  for (const auto& [op, group] : groups) {
    const at::Tensor indices = at::tensor(group.indices, at::kLong).to(images.device(), /*non_blocking=*/true);
    changed.index_copy_(0, indices, change_alike(images.index_select(0, indices).contiguous(), group.changes));
  }
  return changed;
}

at::Tensor change_images(const at::Tensor& images, const std::vector<ImageChanges>& changes) {
  std::size_t steps = 0;
  for (const ImageChanges& of_image : changes) steps = std::max(steps, of_image.size());
  at::Tensor changed = images;
  std::vector<ImageChange> now(changes.size());
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < changes.size(); ++i)
      now[i] = step < changes[i].size() ? changes[i][step] : ImageChange();
    changed = change_images(changed, now);
  }
  return changed;
}

const std::vector<ImageOp>& image_ops_of(AugmentationSet set) {
  using enum ImageOp;
  static const std::vector<ImageOp> safe = {AUTOCONTRAST, EQUALIZE, POSTERIZE,   ROTATE,     SOLARIZE,
                                            SHEAR_X,      SHEAR_Y,  TRANSLATE_X, TRANSLATE_Y};
  static const std::vector<ImageOp> all = [] {
    std::vector<ImageOp> ops = safe;
    for (const ImageOp op : {COLOR, CONTRAST, BRIGHTNESS, SHARPNESS}) ops.push_back(op);
    return ops;
  }();
  return set == AugmentationSet::SAFE ? safe : all;
}

ImageChange draw_image_change(ImageOp op, double severity, AugmentationSet set, std::int64_t height, std::int64_t width,
                              const std::function<double(double low, double high)>& uniform) {
  const auto scaled = [&](double most) { return uniform(0.1, severity) * most / 10; };
  const auto either_sign = [&](double value) { return uniform(0, 1) > 0.5 ? -value : value; };
  const auto pixels = [&](std::int64_t size) { return either_sign(std::trunc(scaled(static_cast<double>(size) / 3))); };
  switch (op) {
    case ImageOp::NONE:
    case ImageOp::AUTOCONTRAST:
    case ImageOp::EQUALIZE:
      return {op};
    case ImageOp::POSTERIZE:
      return {op, 4 - std::trunc(scaled(4))};
    case ImageOp::SOLARIZE:
      return {op, 256 - std::trunc(scaled(256))};
    case ImageOp::ROTATE:
      return {op, either_sign(std::trunc(scaled(30)))};
    case ImageOp::SHEAR_X:
    case ImageOp::SHEAR_Y:
      return {op, either_sign(scaled(0.3))};
    case ImageOp::TRANSLATE_X:
      return {op, pixels(width)};
    case ImageOp::TRANSLATE_Y:
      return {op, pixels(height)};
    default:
      break;
  }
  if (set == AugmentationSet::ORIGINAL) return {op, scaled(1.8) + 0.1};
  const double factor = uniform(0, 1) > 0.5 ? uniform(1, severity) : uniform(1 - 0.09 * severity, 1);
  return {op, op == ImageOp::BRIGHTNESS && factor > 1 ? factor * 0.75 : factor};
}

ImageChange sample_image_change(AugmentationSet set, double severity, std::int64_t height, std::int64_t width,
                                RandomStream& random) {
  const std::vector<ImageOp>& ops = image_ops_of(set);
  const ImageOp op = ops[random.below(ops.size())];
  return draw_image_change(op, severity, set, height, width,
                           [&](double low, double high) { return low + (high - low) * random.uniform(); });
}

void warn_unless_from_0_to_1(const at::Tensor& images, const std::string& who) {
  if (!images.is_floating_point() || !images.is_cpu() || images.numel() == 0) return;
  const auto [low, high] = images.aminmax();
  const double least = low.item<double>(), most = high.item<double>();
  if (least < 0 || most > 1)
    warn(join(who, ": needs images with values from 0 to 1, and these have ", least, " to ", most,
              ": others are cut off. Normalize them in the model or in microbatch_transforms"));
}

at::Tensor to_bytes(const at::Tensor& images, const std::string& who) {
  if (images.dim() != 4 || (images.size(1) != 1 && images.size(1) != 3))
    throw ConfigError(who, ": needs images [N, C, H, W] with one or three channels, got ", images.sizes());
  if (images.scalar_type() == at::kByte) return images;
  if (!images.is_floating_point())
    throw ConfigError(who, ": needs images in uint8, or from 0 to 1 in a floating-point type, got ",
                      images.scalar_type());
  return images.to(at::kFloat).mul(255).round_().clamp_(0, 255).to(at::kByte);
}

at::Tensor from_bytes(const at::Tensor& images, const at::Tensor& like) {
  const at::Tensor converted = like.is_floating_point() ? images.to(like.scalar_type()).div_(255) : images;
  return converted.contiguous(like.suggest_memory_format());
}

}  // namespace composer::algorithms

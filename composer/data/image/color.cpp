// Transforms of colors. They compute as torchvision does, whose results for uint8 are rounded down.
#include <algorithm>
#include <array>
#include <cmath>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/data/image/images.h"
#include "composer/data/image/transforms.h"

namespace composer::data {
namespace {

bool has_colors(const at::Tensor& images) { return images.size(-3) == 3; }

double brightest(const at::Tensor& images) { return images.scalar_type() == at::kByte ? 255 : 1; }

// The grey values as floats [..., 1, H, W].
at::Tensor grey_of(const at::Tensor& images) {
  const at::Tensor floats = images.to(at::kFloat);
  if (!has_colors(images)) return floats;
  return floats.narrow(-3, 0, 1).mul(0.2989).add_(floats.narrow(-3, 1, 1), 0.587).add_(floats.narrow(-3, 2, 1), 0.114);
}

at::Tensor blended(const at::Tensor& images, const at::Tensor& other, double share) {
  return images.to(at::kFloat).mul(share).add_(other, 1 - share).clamp_(0, brightest(images)).to(images.scalar_type());
}

at::Tensor with_brightness(const at::Tensor& images, double factor) {
  return images.to(at::kFloat).mul(factor).clamp_(0, brightest(images)).to(images.scalar_type());
}

at::Tensor with_contrast(const at::Tensor& images, double factor) {
  at::Tensor grey = grey_of(images);
  if (images.scalar_type() == at::kByte) grey = grey.floor();
  return blended(images, grey.mean({-3, -2, -1}, true), factor);
}

at::Tensor with_saturation(const at::Tensor& images, double factor) {
  if (!has_colors(images)) return images;
  at::Tensor grey = grey_of(images);
  if (images.scalar_type() == at::kByte) grey = grey.floor();
  return blended(images, grey, factor);
}

// Turns the hue of a color of values from 0 to 1, by way of HSV.
std::array<float, 3> turned(float red, float green, float blue, float turn) {
  const float most = std::max({red, green, blue}), least = std::min({red, green, blue}), spread = most - least;
  if (spread == 0) return {red, green, blue};
  const float to_red = (most - red) / spread, to_green = (most - green) / spread, to_blue = (most - blue) / spread;
  float hue = most == red ? to_blue - to_green : most == green ? 2 + to_red - to_blue : 4 + to_green - to_red;
  hue = hue / 6 + 1 + turn;
  hue -= std::floor(hue);
  const float sixth = std::floor(hue * 6), rest = hue * 6 - sixth, saturation = spread / most;
  const auto within = [](float value) { return std::clamp(value, 0.0F, 1.0F); };
  const float p = within(most * (1 - saturation)), q = within(most * (1 - saturation * rest)),
              t = within(most * (1 - saturation * (1 - rest)));
  switch (static_cast<int>(sixth) % 6) {
    case 0:
      return {most, t, p};
    case 1:
      return {q, most, p};
    case 2:
      return {p, most, t};
    case 3:
      return {p, q, most};
    case 4:
      return {t, p, most};
    default:
      return {most, p, q};
  }
}

at::Tensor with_hue(const at::Tensor& images, double turn) {
  constexpr double kUpTo255 = 256 - 1e-3;  // 1 becomes 255, and each number has an equal share
  if (!has_colors(images) || turn == 0) return images;
  const bool bytes = images.scalar_type() == at::kByte;
  at::Tensor floats = images.to(at::kCPU, at::kFloat, false, true).contiguous();
  if (bytes) floats.div_(255);
  auto* value = floats.mutable_data_ptr<float>();
  const std::int64_t plane = images.size(-2) * images.size(-1), number = images.numel() / (3 * plane);
  for (std::int64_t n = 0; n < number; ++n, value += 3 * plane)
    for (std::int64_t i = 0; i < plane; ++i) {
      const auto [red, green, blue] =
          turned(value[i], value[plane + i], value[2 * plane + i], static_cast<float>(turn));
      value[i] = red;
      value[plane + i] = green;
      value[2 * plane + i] = blue;
    }
  return (bytes ? floats.mul_(kUpTo255) : floats).to(images.device(), images.scalar_type());
}

// One number x stands for a range around `centre`.
Range around(const Range& range, double centre, double least) {
  return range.one_number ? Range(std::max(least, centre - range.low), centre + range.low) : range;
}

}  // namespace

void ColorJitter::check() const {
  constexpr double kMost = 1e6;
  const auto check_factor = [](const char* name, const Range& range) {
    if (range.one_number && !(range.low >= 0))
      throw ConfigError("ColorJitter: ", name, " must be >= 0, got ", range.low);
    detail::check_range("ColorJitter", name, around(range, 1, 0), 0, kMost);
  };
  check_factor("brightness", brightness);
  check_factor("contrast", contrast);
  check_factor("saturation", saturation);
  if (hue.one_number && !(hue.low >= 0)) throw ConfigError("ColorJitter: hue must be from 0 to 0.5, got ", hue.low);
  detail::check_range("ColorJitter", "hue", around(hue, 0, -1), -0.5, 0.5);
}

at::Tensor ColorJitter::operator()(const at::Tensor& images, RandomStream& random) const {
  detail::check_images("ColorJitter", images);
  using Change = at::Tensor (*)(const at::Tensor&, double);
  struct Step {
    Change change;
    Range range;
    bool asked;
  };
  const auto asked = [](const Range& range) { return !(range.one_number && range.low == 0); };
  std::array steps = {Step{with_brightness, around(brightness, 1, 0), asked(brightness)},
                      Step{with_contrast, around(contrast, 1, 0), asked(contrast)},
                      Step{with_saturation, around(saturation, 1, 0), asked(saturation)},
                      Step{with_hue, around(hue, 0, -1), asked(hue)}};
  for (std::size_t last = steps.size(); last > 1; --last)
    std::swap(steps[last - 1], steps[static_cast<std::size_t>(random.below(last))]);
  at::Tensor result = images;
  for (const Step& step : steps) {
    const double drawn = step.range.draw(random);
    if (step.asked) result = step.change(result, drawn);
  }
  return result;
}

void Grayscale::check() const {
  if (channels != 1 && channels != 3) throw ConfigError("Grayscale: channels must be 1 or 3, got ", channels);
}

at::Tensor Grayscale::operator()(const at::Tensor& images) const {
  detail::check_images("Grayscale", images);
  const at::Tensor grey = grey_of(images).to(images.scalar_type());
  std::vector<std::int64_t> shape = images.sizes().vec();
  shape[shape.size() - 3] = channels;
  return grey.size(-3) == channels ? grey : grey.expand(shape).contiguous();
}

void RandomGrayscale::check() const { detail::check_probability("RandomGrayscale", p); }

at::Tensor RandomGrayscale::operator()(const at::Tensor& images, RandomStream& random) const {
  detail::check_images("RandomGrayscale", images);
  return random.uniform() < p ? Grayscale{.channels = images.size(-3) == 1 ? 1 : 3}(images) : images;
}

}  // namespace composer::data

#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/data/image/image_size.h"
#include "composer/data/in_memory.h"
#include "composer/util/random.h"

// Transforms of images [C, H, W] or batches [N, C, H, W], uint8 or floats from 0 to 1. They are those of
// torchvision.transforms.v2: names, parameters, ranges and distributions are the same. A random one draws once for all
// images of a batch. None changes its input.
namespace composer::data {

enum class Interpolation : std::uint8_t { NEAREST, BILINEAR, BICUBIC };

// From which a number is drawn, each as likely. What one number means is up to who takes it.
struct Range {
  Range() = default;
  Range(double one) : low(one), high(one), one_number(true) {}
  Range(double low, double high) : low(low), high(high) {}
  double draw(RandomStream& random) const { return low + (high - low) * random.uniform(); }

  double low = 0, high = 0;
  bool one_number = false;
};

struct COMPOSER_EXPORT Resize {
  ImageSize size;  // one number: of the shorter side; the image keeps its shape
  Interpolation interpolation = Interpolation::BILINEAR;
  bool antialias = true;      // when it becomes smaller; not with NEAREST
  std::int64_t max_size = 0;  // the longer side becomes no longer, if size is one number; 0: no limit

  void check() const;
  ImageSize size_of(ImageSize whole) const;
  at::Tensor operator()(const at::Tensor& images) const;
  ImageSize enough(ImageSize whole, RandomStream) const;
};

// An image that is smaller gets a border of 0.
struct COMPOSER_EXPORT CenterCrop {
  ImageSize size;

  void check() const;
  at::Tensor operator()(const at::Tensor& images) const;
};

enum class PadMode : std::uint8_t { CONSTANT, EDGE, REFLECT };

struct COMPOSER_EXPORT Pad {
  std::vector<std::int64_t> padding;  // all sides; left and right, top and bottom; or left, top, right, bottom
  double fill = 0;                    // with CONSTANT
  PadMode mode = PadMode::CONSTANT;

  void check() const;
  at::Tensor operator()(const at::Tensor& images) const;
};

struct COMPOSER_EXPORT RandomCrop {
  ImageSize size;
  std::vector<std::int64_t> padding = {};  // as of Pad, before the crop
  bool pad_if_needed = false;              // an image that is too small is padded; otherwise it is an error
  double fill = 0;
  PadMode mode = PadMode::CONSTANT;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
};

// A random part of the image, resized: `scale` is its share of the area, `ratio` its width divided by its height.
struct COMPOSER_EXPORT RandomResizedCrop {
  ImageSize size;
  Range scale = {0.08, 1};
  Range ratio = {3. / 4, 4. / 3};
  Interpolation interpolation = Interpolation::BILINEAR;
  bool antialias = true;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
  ImageSize enough(ImageSize whole, RandomStream random) const;
};

struct COMPOSER_EXPORT RandomHorizontalFlip {
  double p = 0.5;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
};

struct COMPOSER_EXPORT RandomVerticalFlip {
  double p = 0.5;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
};

// Changes brightness, contrast, saturation and hue in a random order. One number x is a factor from max(0, 1 - x) to
// 1 + x or, of hue, a turn from -x to x, where 0.5 is half of the circle. Grey images get brightness and contrast.
struct COMPOSER_EXPORT ColorJitter {
  Range brightness = 0.0, contrast = 0.0, saturation = 0.0, hue = 0.0;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
};

struct COMPOSER_EXPORT Grayscale {
  std::int64_t channels = 1;  // 1, or 3 equal ones

  void check() const;
  at::Tensor operator()(const at::Tensor& images) const;
};

struct COMPOSER_EXPORT RandomGrayscale {
  double p = 0.1;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
};

// Turns by an angle in degrees, moves by up to these fractions of width and height, scales and shears the image. One
// number x of degrees or shear is from -x to x.
struct COMPOSER_EXPORT RandomAffine {
  Range degrees;
  double translate_x = 0, translate_y = 0;
  Range scale = {1, 1};
  Range shear = 0.0;  // degrees, along x
  Interpolation interpolation = Interpolation::NEAREST;
  double fill = 0;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
};

struct COMPOSER_EXPORT RandomRotation {
  Range degrees;
  Interpolation interpolation = Interpolation::NEAREST;
  double fill = 0;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
};

// Sets a random rectangle to `value`: `scale` is its share of the area, `ratio` its height divided by its width.
struct COMPOSER_EXPORT RandomErasing {
  double p = 0.5;
  Range scale = {0.02, 0.33};
  Range ratio = {0.3, 3.3};
  double value = 0;

  void check() const;
  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
};

// Pixels from 0 to 255 become float32 from 0 to 1; floats stay as they are.
struct COMPOSER_EXPORT ToFloat {
  at::Tensor operator()(const at::Tensor& images) const;
};

// (value - mean) / stddev, of uint8 pixels after division by 255, as float32. Throws ConfigError for a wrong number of
// means, or a stddev that is not > 0.
COMPOSER_EXPORT at::Tensor normalized(const at::Tensor& images, const Normalize& normalize);
// Mean and standard deviation of ImageNet's colors, which most trained models for images expect.
COMPOSER_EXPORT Normalize imagenet_normalize();

template <class T>
concept DrawingTransform = requires(const T& transform, const at::Tensor& images, RandomStream& random) {
  { transform(images, random) } -> std::convertible_to<at::Tensor>;
};
template <class T>
concept PlainTransform = requires(const T& transform, const at::Tensor& images) {
  { transform(images) } -> std::convertible_to<at::Tensor>;
};

// Any of the transforms above, or anything that is called with an image, or with an image and a RandomStream&.
class COMPOSER_EXPORT Transform {
 public:
  template <class T>
  requires(!std::same_as<T, Transform> && (DrawingTransform<T> || PlainTransform<T>)) Transform(T transform) {
    if constexpr (requires { transform.check(); }) transform.check();
    if constexpr (requires { bool(transform.draws()); })
      draws_ = transform.draws();
    else
      draws_ = DrawingTransform<T>;
    if constexpr (requires(ImageSize size, RandomStream random) { transform.enough(size, random); })
      enough_ = [transform](ImageSize whole, RandomStream random) { return transform.enough(whole, random); };
    apply_ = [transform = std::move(transform)](const at::Tensor& images, RandomStream& random) -> at::Tensor {
      if constexpr (DrawingTransform<T>) {
        return transform(images, random);
      } else {
        return transform(images);
      }
    };
  }
  Transform(Normalize normalize);

  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const { return apply_(images, random); }
  bool draws() const { return draws_; }  // takes random numbers

 private:
  friend class Transforms;
  std::function<at::Tensor(const at::Tensor&, RandomStream&)> apply_;
  std::function<ImageSize(ImageSize whole, RandomStream)> enough_;
  bool draws_ = false;
};

// Transforms one after another. The random numbers are those of the stream that is given, so that the transformed
// image depends on nothing else. Making one throws ConfigError for a parameter that is out of range.
class COMPOSER_EXPORT Transforms {
 public:
  Transforms() = default;
  Transforms(std::initializer_list<Transform> list) : list_(list) {}
  explicit Transforms(std::vector<Transform> list) : list_(std::move(list)) {}

  at::Tensor operator()(const at::Tensor& images, RandomStream& random) const;
  at::Tensor operator()(const at::Tensor& images) const;  // throws ConfigError if one of them draws random numbers
  bool draws() const;
  // The size at which a file is good enough if these transforms follow: twice what the first one reduces it to, with
  // antialiasing. Pass the stream with which they will be applied.
  ImageSize enough(ImageSize whole, RandomStream random) const;

  bool empty() const { return list_.empty(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::vector<Transform> list_;
};

}  // namespace composer::data

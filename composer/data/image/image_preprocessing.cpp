#include "composer/data/image/image_preprocessing.h"

#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/data/image/images.h"
#include "composer/data/image/read_image.h"

namespace composer::data {
namespace {

std::vector<Option<ImagePreprocessingOptions>> image_preprocessing_options() {
  using O = ImagePreprocessingOptions;
  return all_options(option("channels", &O::channels)
                         .must("be 1 or 3", [](std::int64_t channels) { return channels == 1 || channels == 3; }),
                     part("resize", &O::resize, "a size"), part("crop", &O::crop, "a size"),
                     option("interpolation", &O::interpolation,
                            {{"nearest", Interpolation::NEAREST},
                             {"bilinear", Interpolation::BILINEAR},
                             {"bicubic", Interpolation::BICUBIC}}),
                     part("normalize", &O::normalize, "means and standard deviations"),
                     option("image", &O::image).not_empty());
}

// The first of the transforms, so that files are decoded at a smaller size if it resizes them.
struct ToChannels {
  std::int64_t channels;
  std::optional<Resize> resize = {};

  void check() const {
    if (resize) resize->check();
  }
  ImageSize enough(ImageSize whole, RandomStream random) const {
    return resize ? resize->enough(whole, random) : whole;
  }
  at::Tensor operator()(const at::Tensor& images) const {
    detail::check_images("ImagePreprocessing", images);
    const std::int64_t given = images.size(-3);
    if (given != 1 && given != 3)
      throw DataError("ImagePreprocessing: expected images of 1 or 3 channels, got ", images.sizes());
    const at::Tensor same = given == channels ? images : Grayscale{.channels = channels}(images);
    return resize ? (*resize)(same) : same;
  }
};

}  // namespace

ImagePreprocessing::ImagePreprocessing(ImagePreprocessingOptions options) : options_(std::move(options)) { prepare(); }

void ImagePreprocessing::prepare() {
  check(options_, image_preprocessing_options(), "ImagePreprocessing: ", "");
  ToChannels first{.channels = options_.channels};
  if (options_.resize != ImageSize())
    first.resize = Resize{.size = options_.resize, .interpolation = options_.interpolation};
  std::vector<Transform> list = {first};
  if (options_.crop != ImageSize()) list.emplace_back(CenterCrop{.size = options_.crop});
  if (options_.normalize)
    list.emplace_back(*options_.normalize);
  else
    list.emplace_back(ToFloat());
  transforms_ = Transforms(std::move(list));
}

at::Tensor ImagePreprocessing::operator()(const at::Tensor& images) const { return transforms_(images); }

at::Tensor ImagePreprocessing::read(const std::filesystem::path& file) const {
  const ReadImageOptions options{.channels = options_.channels};
  return transforms_(
      detail::read_image(file, options, [&](ImageSize whole) { return transforms_.enough(whole, RandomStream(0)); }));
}

Batch ImagePreprocessing::read(const std::vector<std::filesystem::path>& files) const {
  if (files.empty()) throw DataError("ImagePreprocessing: there are no files to read");
  std::vector<at::Tensor> images;
  images.reserve(files.size());
  for (const std::filesystem::path& file : files) {
    images.push_back(read(file));
    if (images.back().sizes() != images.front().sizes())
      throw DataError("ImagePreprocessing: ", files.front().string(), " becomes ", images.front().sizes(), " and ",
                      file.string(), ' ', images.back().sizes(), "; set crop, or resize to two numbers");
  }
  return {{options_.image, at::stack(images)}};
}

Batch ImagePreprocessing::apply(const Batch& raw) const {
  Batch batch = raw;
  batch.set(options_.image, (*this)(raw.at(options_.image)));
  return batch;
}

void ImagePreprocessing::visit_state(StateVisitor& visit) {
  visit("channels", options_.channels);
  visit("resize_height", options_.resize.height);
  visit("resize_width", options_.resize.width);
  visit("crop_height", options_.crop.height);
  visit("crop_width", options_.crop.width);
  visit("interpolation", options_.interpolation);
  visit("image", options_.image);
  bool normalizes = options_.normalize.has_value();
  visit("normalizes", normalizes);
  Normalize normalize = options_.normalize.value_or(Normalize());
  visit("mean", normalize.mean);
  visit("stddev", normalize.stddev);
  if (!visit.is_loading()) return;
  options_.normalize = normalizes ? std::optional(std::move(normalize)) : std::nullopt;
  prepare();
}

}  // namespace composer::data

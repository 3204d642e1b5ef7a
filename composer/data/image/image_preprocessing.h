#pragma once
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/data/image/image_size.h"
#include "composer/data/image/transforms.h"
#include "composer/data/preprocessing.h"

namespace composer::data {

struct ImagePreprocessingOptions {
  std::int64_t channels = 3;  // 1: grey, 3: RGB, as the model takes
  ImageSize resize = {};      // as Resize: one number is the length of the shorter side; 0: none
  ImageSize crop = {};        // the middle, as CenterCrop; 0: none
  Interpolation interpolation = Interpolation::BILINEAR;  // of Resize: NEAREST, BILINEAR or BICUBIC
  std::optional<Normalize> normalize = {};                // unset: floats from 0 to 1
  std::string image = "input";                            // the tensor of a batch that has the images
};

// What images go through before a model sees them: the part that is not random, and so the same for validation and
// prediction. It is saved beside the weights.
class COMPOSER_EXPORT ImagePreprocessing final : public Preprocessing {
 public:
  // Throws ConfigError for an invalid option.
  explicit ImagePreprocessing(ImagePreprocessingOptions options = {});

  // One image [C, H, W], or images of one size [N, C, H, W], uint8 or floats from 0 to 1.
  at::Tensor operator()(const at::Tensor& images) const;
  // An image file, or several as one batch [N, C, H, W], which requires that all get one size.
  at::Tensor read(const std::filesystem::path& file) const;
  Batch read(const std::vector<std::filesystem::path>& files) const;
  // Which of the two a list in braces would mean is hard to see: give a path or a std::vector.
  template <class T>
  void read(std::initializer_list<T>) const = delete;
  // The same as transforms, for ImageFolderOptions. Images of other channels become those of the options.
  Transforms transforms() const { return transforms_; }
  const ImagePreprocessingOptions& options() const { return options_; }

  std::string name() const override { return "image"; }
  Batch apply(const Batch& raw) const override;
  void visit_state(StateVisitor& visit) override;

 private:
  void prepare();

  ImagePreprocessingOptions options_;
  Transforms transforms_;
};

}  // namespace composer::data

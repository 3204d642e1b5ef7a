#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

enum class ResizingMode : std::uint8_t {
  RESIZE,  // to the nearest pixels
  CROP,    // crop to a random part, the same for every image of a batch
};

struct ProgressiveResizingOptions {
  ResizingMode mode = ResizingMode::RESIZE;  // RESIZE to the nearest pixels, or CROP to a random part
  double initial_scale = 0.5;                // sides of the images at first, as a share of their full size, 0 to 1
  double finetune_fraction = 0.2;            // share of the run, at its end, with images of full size, 0 to 1
  double delay_fraction = 0.5;               // share of the run at the initial scale, 0 to 1 - finetune_fraction
  std::int64_t size_increment = 4;           // the width of smaller images is a multiple of this, >= 1
  bool resize_targets = false;               // also resize targets with the size of the images, such as masks
  std::string input_key = "input";           // name of the images in the batch
  std::string target_key = "target";         // name of the targets in the batch
};

struct ResizedBatch {
  at::Tensor input, target;
};
// Scales the sides of images [..., H, W] by `scale`, rounded down; from a scale of 1 on, images do not change. If
// `resize_target` is set, a target with the size of the images is resized in the same way. `sample(high)` returns an
// integer from 0 to high - 1; it is called in mode CROP, for the first row and then for the first column.
COMPOSER_EXPORT ResizedBatch resize_batch(const at::Tensor& input, const at::Tensor& target, double scale,
                                          ResizingMode mode, bool resize_target,
                                          const std::function<std::int64_t(std::int64_t high)>& sample);

// Trains on small images at first, which is faster, and on larger ones later. Logs progressive_resizing/height, /width
// and /scale_factor. Crops depend only on the trainer's seed and the number of the batch, so a resumed run uses the
// same ones. Throws ConfigError at the first batch if the input is not [N, C, H, W]; warns if a run of a few epochs
// ends before images of full size are trained.
class COMPOSER_EXPORT ProgressiveResizing final : public Algorithm {
 public:
  explicit ProgressiveResizing(ProgressiveResizingOptions options = {});  // throws ConfigError
  explicit ProgressiveResizing(EmptyOptions) : ProgressiveResizing(ProgressiveResizingOptions{}) {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::AFTER_DATALOADER}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  double scale_at(double elapsed) const;

  ProgressiveResizingOptions options_;
  bool is_checked_ = false;
};

}  // namespace composer::algorithms

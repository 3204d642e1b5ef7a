#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

// A rectangle of pixels: rows from top to bottom - 1, columns from left to right - 1.
struct CutOutHole {
  std::int64_t top = 0, left = 0, bottom = 0, right = 0;
};

struct CutOutOptions {
  std::int64_t num_holes = 1;       // squares per batch, >= 1
  double length = 0.5;              // side of a square as a fraction of the shorter side of the images, 0 to 1
  bool uniform_sampling = false;    // hide every pixel equally often; false: pixels near the border less often
  std::string input_key = "input";  // name of the images in the batch
  // Returns the squares of a batch; unset: random.
  std::function<std::vector<CutOutHole>(std::int64_t height, std::int64_t width)> draw = nullptr;
};

// Draws the squares for images of this size, clipped to the image. `sample(low, high)` returns an integer from low to
// high - 1; it is called for the row of each centre and then for its column.
COMPOSER_EXPORT std::vector<CutOutHole> cutout_holes(
    std::int64_t height, std::int64_t width, const CutOutOptions& options,
    const std::function<std::int64_t(std::int64_t low, std::int64_t high)>& sample);

// A copy of the images [..., H, W] with zeros in the holes, the same in every image.
COMPOSER_EXPORT at::Tensor cutout_batch(const at::Tensor& input, const std::vector<CutOutHole>& holes);

// Hides random squares of the images of each batch (arXiv:1708.04552), the same squares in all images. They depend only
// on the trainer's seed and the number of the batch, so a resumed run hides the same ones. Throws ConfigError at the
// first batch if the input is not [N, C, H, W].
class COMPOSER_EXPORT CutOut final : public Algorithm {
 public:
  explicit CutOut(CutOutOptions options = {});  // throws ConfigError
  explicit CutOut(EmptyOptions) : CutOut(CutOutOptions{}) {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::AFTER_DATALOADER}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  CutOutOptions options_;
};

}  // namespace composer::algorithms

#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/algorithms/microbatch_count.h"
#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

// A rectangle of pixels: rows from top to bottom - 1, columns from left to right - 1.
struct CutMixBox {
  std::int64_t top = 0, left = 0, bottom = 0, right = 0;
};

// Which images are combined, and where.
struct CutMixDraw {
  at::Tensor permutation;  // int64 [N]: the index of the other image of each image
  CutMixBox box;
};

struct CutMixOptions {
  double alpha = 1;  // parameter of the beta distribution of the share of the image that is kept, > 0; 1: uniform
  bool interpolate_loss = false;      // mix the losses of both targets instead of the targets, for a loss that accepts
                                      // classes only; evaluates the loss twice
  bool uniform_sampling = false;      // replace every pixel equally often; false: pixels near the border less often
  std::string input_key = "input";    // name of the images in the batch
  std::string target_key = "target";  // name of the targets in the batch
  // Returns the permutation and the box of a microbatch; unset: random.
  std::function<CutMixDraw(std::int64_t samples, std::int64_t height, std::int64_t width)> draw = nullptr;
};

// Draws a box whose sides are `length` times those of the image, rounded down, clipped to the image. `length` is from 0
// to 1; to keep a share of the image, it is sqrt(1 - share). `sample(low, high)` returns an integer from low to high -
// 1; it is called for the row of the centre and then for its column.
COMPOSER_EXPORT CutMixBox cutmix_box(std::int64_t height, std::int64_t width, double length, bool uniform_sampling,
                                     const std::function<std::int64_t(std::int64_t low, std::int64_t high)>& sample);

struct CutMixBatch {
  at::Tensor input;  // with the pixels of input[permutation] in the box
  // target[permutation]; for targets with the size of the images: the target, combined like the input.
  at::Tensor other_target;
  double kept = 1;  // share of the image outside of the box
};
// Images [N, C, H, W]; permutation: int64 [N].
COMPOSER_EXPORT CutMixBatch cutmix_batch(const at::Tensor& input, const at::Tensor& target,
                                         const at::Tensor& permutation, const CutMixBox& box);

// Replaces a rectangle of each image of a microbatch by the same rectangle of another image, and mixes the targets by
// area (arXiv:1905.04899). In targets with the size of the images, such as masks, the rectangle is replaced as well.
// Uses one rectangle and one permutation per microbatch. They depend only on the trainer's seed and the numbers of the
// batch and the microbatch, so a resumed run uses the same ones. Requires a model with one output, and a loss that
// accepts probabilities unless interpolate_loss is set. Throws ConfigError at the first batch if the input is not [N,
// C, H, W], if classes are not in dimension 1 of the output, or for interpolate_loss with targets of the size of the
// images.
class COMPOSER_EXPORT CutMix final : public Algorithm {
 public:
  explicit CutMix(CutMixOptions options = {});  // throws ConfigError
  explicit CutMix(EmptyOptions) : CutMix(CutMixOptions{}) {}
  StateDict local_hparams() const override;
  EventSet events() const override;
  void apply(Event event, State& state, Logger& logger) override;
  bool mixes_targets() const override { return true; }
  bool interpolates_loss() const override { return options_.interpolate_loss; }

 private:
  void cut(State& state);
  CutMixDraw draw(const State& state, const at::Tensor& input);

  CutMixOptions options_;
  MicrobatchCount microbatches_;
  // Set at BEFORE_FORWARD; the targets are mixed later, after other algorithms have changed them.
  at::Tensor permutation_;
  CutMixBox box_;
};

}  // namespace composer::algorithms

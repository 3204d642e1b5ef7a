#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/algorithm.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::algorithms {

// The rows and columns that are kept: int64, ascending.
struct ColOutKept {
  at::Tensor rows, columns;
};

struct ColOutOptions {
  double p_row = 0.15;                // share of the rows that is dropped, 0 to 1; at least one row is kept
  double p_col = 0.15;                // share of the columns that is dropped, 0 to 1; at least one column is kept
  bool resize_target = true;          // also drop them in a target with the size of the images, such as a mask
  std::string input_key = "input";    // name of the images in the batch
  std::string target_key = "target";  // name of the targets in the batch
  // Returns the rows and columns to keep in a batch; unset: random.
  std::function<ColOutKept(std::int64_t height, std::int64_t width)> draw = nullptr;
};

// Draws the rows and columns to keep. `permute(n)` returns a permutation of 0 to n - 1; it is called for the rows and
// then for the columns.
COMPOSER_EXPORT ColOutKept colout_kept(std::int64_t height, std::int64_t width, double p_row, double p_col,
                                       const std::function<at::Tensor(std::int64_t n)>& permute);

// Returns the kept rows and columns of images [..., H, W].
COMPOSER_EXPORT at::Tensor colout_batch(const at::Tensor& input, const ColOutKept& kept);

// Drops random rows and columns of the images of each batch, the same in all of them, so that steps become cheaper.
// They depend only on the trainer's seed and the number of the batch, so a resumed run drops the same. Throws
// ConfigError at the first batch if the input is not [N, C, H, W].
class COMPOSER_EXPORT ColOut final : public Algorithm {
 public:
  explicit ColOut(ColOutOptions options = {});  // throws ConfigError
  explicit ColOut(EmptyOptions) : ColOut(ColOutOptions{}) {}
  StateDict local_hparams() const override;
  EventSet events() const override { return {Event::AFTER_DATALOADER}; }
  void apply(Event event, State& state, Logger& logger) override;

 private:
  ColOutOptions options_;
};

}  // namespace composer::algorithms

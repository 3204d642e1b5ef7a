#pragma once
#include <cstdint>
#include <string>

#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/surgery/surgery_algorithm.h"

namespace composer::algorithms {

struct GhostBatchNormOptions {
  std::int64_t ghost_batch_size = 32;  // largest number of samples that are normalized together, >= 1
};

// Lets every batch norm (1-d, 2-d, 3-d) compute its training statistics over parts of a microbatch of about equal size.
// For each part, running statistics move by the momentum divided by the number of parts. The weight "bn1.weight" is
// called "bn1.batchnorm.weight" afterwards. Throws ConfigError for invalid options and for a batch norm without a
// momentum. In training, the forward pass throws DataError for fewer samples than ghost_batch_size.
COMPOSER_EXPORT Replacements ghost_batchnorm(torch::nn::Module& model, const GhostBatchNormOptions& options = {});

// Applies ghost_batchnorm() at INIT. The noise of small batches regularises training with large ones
// (arXiv:1705.08741).
class COMPOSER_EXPORT GhostBatchNorm final : public SurgeryAlgorithm {
 public:
  explicit GhostBatchNorm(GhostBatchNormOptions options = {});  // throws ConfigError
  explicit GhostBatchNorm(EmptyOptions) : GhostBatchNorm(GhostBatchNormOptions()) {}
  StateDict local_hparams() const override;

 private:
  Replacements operate(State& state) const override;
  void log(const Replacements& done, Logger& logger) const override;
  std::string nothing_found() const override;

  GhostBatchNormOptions options_;
};

}  // namespace composer::algorithms

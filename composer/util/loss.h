#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/loss_weight.h"

namespace composer {

enum class Reduction : std::uint8_t { NONE, MEAN, SUM };

struct SoftCrossEntropyOptions {
  at::Tensor weight = {};            // of each class; none if undefined
  std::int64_t ignore_index = -100;  // targets of this class count nothing; for indices only
  Reduction reduction = Reduction::MEAN;
};

// Cross entropy of logits [N, C, ...] with classes [N, ...] or with probabilities [N, C, ...]. The mean of the latter
// is over all probability there is, so samples whose row is zero weigh nothing; NaN if all rows are. Probabilities make
// the loss float32 even if the logits are of half precision. Nothing is read on the host. Throws DataError if the
// shapes fit neither, if probabilities are whole numbers, which target_weight takes for classes, or (on the host) if a
// class is out of range, with its sample.
COMPOSER_EXPORT at::Tensor soft_cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                                              const SoftCrossEntropyOptions& options = {});

// What the mean of soft_cross_entropy over these targets is over, for Model::loss_weight. Whole numbers are classes:
// how many are not ignored, or the sum of their weights. Others are probabilities: their sum. Throws DataError as that
// does for classes, of which none but those with weights are looked at.
COMPOSER_EXPORT LossWeight target_weight(const at::Tensor& target, const SoftCrossEntropyOptions& options = {});

struct BinaryCrossEntropyOptions {
  at::Tensor weight, pos_weight;  // none if undefined
  Reduction reduction = Reduction::SUM;
  bool scale_by_batch_size = true;  // divides the result by N
};

// Of logits [N, C, ...], each class on its own, with classes or probabilities as above.
COMPOSER_EXPORT at::Tensor binary_cross_entropy_with_logits(const at::Tensor& logits, const at::Tensor& target,
                                                            const BinaryCrossEntropyOptions& options = {});

// The mean of the squared differences of two tensors of one shape. Throws DataError for others: at::mse_loss broadcasts
// outputs [32, 1] and targets [32] to [32, 32], and trains on differences that mean nothing.
COMPOSER_EXPORT at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets);

enum class TargetKind : std::uint8_t { INDICES, PROBABILITIES };
// By the shapes: that of `logits` without dimension 1, or the same. Throws DataError otherwise.
COMPOSER_EXPORT TargetKind target_kind(const at::Tensor& logits, const at::Tensor& target);
// The same, nullopt otherwise.
COMPOSER_EXPORT std::optional<TargetKind> find_target_kind(const at::Tensor& logits, const at::Tensor& target);

// Where a class is not `ignore_index`. Compares in int64: -100 as a uint8 would be class 156.
COMPOSER_EXPORT at::Tensor not_ignored(const at::Tensor& classes, std::int64_t ignore_index);

// Throws DataError with the class and its sample if a class on the host is below 0 or above num_classes - 1, and is not
// `ignore_index`. Does nothing if `target` is on another device, where reading it would wait. `metric` begins the error
// of one.
COMPOSER_EXPORT void check_classes(const at::Tensor& target, std::int64_t num_classes,
                                   std::optional<std::int64_t> ignore_index, std::string_view metric = {});

// `tensor` in float32 if it is of half precision, else as it is: sums and logarithms in bfloat16 have two digits.
COMPOSER_EXPORT at::Tensor at_least_float(const at::Tensor& tensor);

// Probabilities as they are; classes [N, ...] as [N, num_classes, ...] of zeros and ones in the dtype of the logits
// (float32 if that is not a floating one). num_classes 0: as many as the logits have. A negative class gives zeros.
// Throws DataError if the shapes fit neither, if classes are not whole numbers or too large (on a GPU the latter is
// found later, by the device), or if probabilities are whole numbers.
COMPOSER_EXPORT at::Tensor ensure_targets_one_hot(const at::Tensor& logits, const at::Tensor& target,
                                                  std::int64_t num_classes = 0);

}  // namespace composer

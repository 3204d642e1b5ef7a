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
  at::Tensor weight = {};                 // [C], one for each class; undefined: all are 1
  std::int64_t ignore_index = -100;       // targets of this class do not count; applies to class indices only
  Reduction reduction = Reduction::MEAN;  // NONE, MEAN or SUM
};

// Cross entropy of logits [N, C, ...] with classes [N, ...] or with probabilities [N, C, ...]. With probabilities, the
// mean is over the sum of all probabilities, so samples whose row is zero have no weight; it is NaN if all rows are
// zero. Probabilities make the loss float32 even if the logits are of half precision. Reads nothing on the host. Throws
// DataError if the shapes fit neither form, if probabilities are whole numbers (target_weight would take them for
// classes), or (on the host) if a class is out of range; the error names its sample.
COMPOSER_EXPORT at::Tensor soft_cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                                              const SoftCrossEntropyOptions& options = {});

// The divisor of the mean that soft_cross_entropy computes over these targets, for Model::loss_weight. Whole numbers
// are classes: the number of classes that are not ignored, or the sum of their weights. Other numbers are
// probabilities: their sum. Throws DataError as soft_cross_entropy does for classes; classes are read only if there are
// weights.
COMPOSER_EXPORT LossWeight target_weight(const at::Tensor& target, const SoftCrossEntropyOptions& options = {});

struct BinaryCrossEntropyOptions {
  at::Tensor weight = {}, pos_weight = {};  // undefined: all are 1
  Reduction reduction = Reduction::SUM;     // NONE, MEAN or SUM
  bool scale_by_batch_size = true;          // divides the result by N
};

// Binary cross entropy of logits [N, C, ...], for each class separately, with classes [N, ...] or probabilities [N, C,
// ...].
COMPOSER_EXPORT at::Tensor binary_cross_entropy_with_logits(const at::Tensor& logits, const at::Tensor& target,
                                                            const BinaryCrossEntropyOptions& options = {});

// The mean of the squared differences of two tensors of one shape. Throws DataError for others: at::mse_loss broadcasts
// outputs [32, 1] and targets [32] to [32, 32], and trains on differences that mean nothing.
COMPOSER_EXPORT at::Tensor mean_squared_error(const at::Tensor& outputs, const at::Tensor& targets);

enum class TargetKind : std::uint8_t { INDICES, PROBABILITIES };
// Determines the kind by the shapes: class indices have the shape of `logits` without dimension 1, and probabilities
// have the shape of `logits`. Throws DataError for any other shape.
COMPOSER_EXPORT TargetKind target_kind(const at::Tensor& logits, const at::Tensor& target);
// Like target_kind(), but returns nullopt for any other shape.
COMPOSER_EXPORT std::optional<TargetKind> find_target_kind(const at::Tensor& logits, const at::Tensor& target);

// A mask of the classes that differ from `ignore_index`. Compares in int64: -100 as a uint8 would be class 156.
COMPOSER_EXPORT at::Tensor not_ignored(const at::Tensor& classes, std::int64_t ignore_index);

// Throws DataError if a class on the host is below 0 or above num_classes - 1, and is not `ignore_index`. The error
// names the class and its sample, and begins with `metric` if a metric calls this. Does nothing if `target` is on
// another device, where reading it would wait.
COMPOSER_EXPORT void check_classes(const at::Tensor& target, std::int64_t num_classes,
                                   std::optional<std::int64_t> ignore_index, std::string_view metric = {});

// `tensor` in float32 if it is of half precision, else unchanged: sums and logarithms in bfloat16 have only two digits.
COMPOSER_EXPORT at::Tensor at_least_float(const at::Tensor& tensor);

// Returns probabilities unchanged, and classes [N, ...] as zeros and ones [N, num_classes, ...] in the dtype of the
// logits (float32 if that is not floating-point). A num_classes of 0 stands for the number of classes in the logits. A
// negative class gives zeros. Throws DataError if the shapes fit neither form, if classes are not whole numbers or are
// too large (on a GPU, the device finds this later), or if probabilities are whole numbers.
COMPOSER_EXPORT at::Tensor ensure_targets_one_hot(const at::Tensor& logits, const at::Tensor& target,
                                                  std::int64_t num_classes = 0);

}  // namespace composer

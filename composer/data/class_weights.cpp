#include "composer/data/class_weights.h"

#include <algorithm>
#include <vector>

#include <ATen/ops/empty.h>

#include "composer/core/error.h"

namespace composer::data {
namespace {

constexpr std::int64_t kMostClasses = 1 << 24;  // more is an error: a target that is no class

at::Tensor checked_targets(const char* who, const at::Tensor& targets, std::int64_t classes) {
  if (!targets.defined() || targets.dim() < 1 || targets.numel() != targets.size(0) || targets.numel() == 0 ||
      !at::isIntegralType(targets.scalar_type(), /*includeBool=*/true))
    throw DataError(who, ": the targets must be classes as whole numbers [N], got ",
                    targets.defined() ? join(targets.sizes(), " of ", targets.scalar_type()) : "an undefined tensor");
  at::Tensor values = targets.detach().reshape({targets.size(0)}).to(at::kCPU, at::kLong).contiguous();
  const auto* value = values.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    if (value[i] < 0 || value[i] >= (classes > 0 ? classes : kMostClasses))
      throw DataError(who, ": the target of sample ", i, " is ", value[i], ", and classes are from 0 to ",
                      (classes > 0 ? classes : kMostClasses) - 1);
  return values;
}

}  // namespace

at::Tensor class_weights(const at::Tensor& targets, std::int64_t classes) {
  if (classes < 0) throw ConfigError("class_weights: classes must be >= 0, got ", classes);
  const at::Tensor values = checked_targets("class_weights", targets, classes);
  const auto* value = values.const_data_ptr<std::int64_t>();
  const std::int64_t samples = values.numel();
  const std::int64_t all = classes > 0 ? classes : *std::max_element(value, value + samples) + 1;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(all));
  for (std::int64_t i = 0; i < samples; ++i) ++counts[static_cast<std::size_t>(value[i])];
  const auto occur = static_cast<double>(all - std::ranges::count(counts, 0));
  at::Tensor weights = at::empty({all}, at::kFloat);
  auto* to = weights.mutable_data_ptr<float>();
  for (const std::int64_t count : counts)
    *to++ = count == 0 ? 0.0F : static_cast<float>(static_cast<double>(samples) / (occur * static_cast<double>(count)));
  return weights.to(targets.device());
}

at::Tensor balanced_weights(const at::Tensor& targets) {
  const at::Tensor of_class = class_weights(targets);
  return of_class.index_select(0, targets.detach().reshape({targets.size(0)}).to(at::kLong));
}

}  // namespace composer::data

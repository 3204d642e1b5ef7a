#include "composer/metrics/predicted_classes.h"

#include <set>

#include <ATen/TensorOperators.h>

#include "composer/core/error.h"
#include "composer/util/loss.h"

namespace composer::metrics {

at::Tensor whole_classes(const std::string& name, const at::Tensor& target) {
  if (!at::isIntegralType(target.scalar_type(), /*includeBool=*/true))
    throw DataError(name, ": classes must be whole numbers, got a target of type ", target.scalar_type(),
                    "; give target.to(at::kLong) if its numbers are classes");
  return target.to(at::kLong);
}

PredictedClasses predicted_classes(const std::string& name, const at::Tensor& logits, const at::Tensor& target,
                                   std::int64_t num_classes, std::int64_t ignore_index) {
  if (logits.dim() != target.dim() + 1 || logits.size(1) != num_classes)
    throw DataError(name, ": expected outputs [N, ", num_classes, ", ...] and targets [N, ...], got ", logits.sizes(),
                    " and ", target.sizes());
  const at::Tensor classes = whole_classes(name, target);
  check_classes(classes, num_classes, ignore_index, name);
  return {.target = classes, .predicted = logits.argmax(1), .valid = not_ignored(classes, ignore_index)};
}

at::Tensor ProbabilitiesOf::is_outside(const std::string& name, const at::Tensor& output) {
  const at::Tensor outside = output.lt(0).logical_or_(output.gt(1)).any();
  if (!has_warned_ && outside.is_cpu() && outside.item<bool>()) {
    has_warned_ = true;
    warn(join(name, ": outputs outside of 0 to 1 are taken for logits. Set logits = true, so that a batch whose ",
              "logits are all from 0 to 1 is measured alike"));
  }
  return outside;
}

void check_one_shape(const std::string& name, const at::Tensor& output, const at::Tensor& target, std::int64_t labels) {
  if (output.sizes() != target.sizes() || (labels > 0 && (output.dim() < 2 || output.size(1) != labels)))
    throw DataError(name, ": outputs and targets must have one shape",
                    labels > 0 ? join(" [N, ", labels, ", ...] (num_labels is ", labels, ")") : std::string(), ", got ",
                    output.sizes(), " and ", target.sizes());
}

void check_yes_or_no(const std::string& name, const at::Tensor& target, std::optional<std::int64_t> ignore_index,
                     const char* remedy) {
  if (!target.is_cpu()) return;
  at::Tensor wrong = target.ne(0).logical_and_(target.ne(1));
  if (ignore_index) wrong.logical_and_(target.ne(*ignore_index));
  if (wrong.any().item<bool>())
    throw DataError(name, ": targets must be 0 (no) or 1 (yes), and some are neither", remedy);
}

std::vector<std::string> names_of_classes(const std::string& metric, const std::vector<std::string>& given,
                                          std::int64_t count) {
  if (!given.empty() && static_cast<std::int64_t>(given.size()) != count)
    throw ConfigError(metric, ": class_names must have a name for each of the ", count, " classes, got ", given.size());
  std::vector<std::string> names = given;
  for (std::int64_t i = static_cast<std::int64_t>(given.size()); i < count; ++i) names.push_back(std::to_string(i));
  std::set<std::string> seen;
  for (const std::string& name : names)
    if (name.empty() || !seen.insert(name).second)
      throw ConfigError(metric, ": class_names must differ and not be empty, got \"", name, "\" ",
                        name.empty() ? "" : "twice");
  return names;
}

}  // namespace composer::metrics

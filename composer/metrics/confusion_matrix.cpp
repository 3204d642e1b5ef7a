#include "composer/metrics/confusion_matrix.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "composer/core/entry.h"
#include "composer/core/error.h"
#include "composer/metrics/names.h"
#include "composer/metrics/predicted_classes.h"
#include "composer/util/loss.h"

namespace composer::metrics {
namespace {

constexpr std::int64_t kLargestTable = 128;   // classes
constexpr std::int64_t kWidthOfImage = 256;   // pixels, at least
constexpr std::int64_t kLargestImage = 4096;  // classes

std::vector<Option<ConfusionMatrixOptions>> confusion_matrix_options() {
  using O = ConfusionMatrixOptions;
  return with_names<O>(
      option("num_classes", &O::num_classes).example("4").at_least(2), option("ignore_index", &O::ignore_index),
      option(
          "normalize", &O::normalize,
          {{"none", Normalize::NONE}, {"true", Normalize::TRUE}, {"pred", Normalize::PRED}, {"all", Normalize::ALL}}),
      option("class_names", &O::class_names));
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(ConfusionMatrixOptions options)
    : options_(checked("ConfusionMatrix", std::move(options), confusion_matrix_options())) {
  names_of_classes(name(), options_.class_names, options_.num_classes);
}
ConfusionMatrix::~ConfusionMatrix() = default;

void ConfusionMatrix::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor& logits = pick(outputs, options_.output);
  const at::Tensor& target = batch.at(options_.target);
  const std::int64_t classes = options_.num_classes;
  if (logits.dim() < 2 || logits.size(1) != classes || find_target_kind(logits, target) != TargetKind::INDICES)
    throw DataError(name(), ": expected outputs [N, ", classes, ", ...] (num_classes is ", classes,
                    ") and targets [N, ...] (classes), got ", logits.sizes(), " and ", target.sizes());
  const at::Tensor whole = whole_classes(name(), target);
  check_classes(whole, classes, options_.ignore_index, name());
  at::Tensor valid;
  if (options_.ignore_index) valid = not_ignored(whole, *options_.ignore_index);
  const at::Tensor places = whole * classes + logits.argmax(1);
  counts_.add(count_by_class(places, valid, classes * classes).reshape({classes, classes}));
}

at::Tensor ConfusionMatrix::compute() const {
  const at::NoGradGuard no_grad;
  const at::Tensor counts = counts_.value();
  return counts.dim() == 0 ? counts : counts.diagonal().sum() / counts.sum();
}

at::Tensor ConfusionMatrix::normalized(Normalize how) const {
  const at::NoGradGuard no_grad;
  const at::Tensor counts = counts_.value();
  if (counts.dim() == 0) return at::zeros({options_.num_classes, options_.num_classes}, at::kDouble);
  switch (how) {
    case Normalize::NONE:
      return counts;
    case Normalize::TRUE:
      return (counts / counts.sum(1, /*keepdim=*/true)).nan_to_num_(0);
    case Normalize::PRED:
      return (counts / counts.sum(0, /*keepdim=*/true)).nan_to_num_(0);
    case Normalize::ALL:
      break;
  }
  return (counts / counts.sum()).nan_to_num_(0);
}

at::Tensor ConfusionMatrix::matrix() const { return normalized(options_.normalize); }

std::map<std::string, LogContent> ConfusionMatrix::content() const {
  std::map<std::string, LogContent> all;
  const std::int64_t classes = options_.num_classes;
  const std::vector<std::string> names = names_of_classes(name(), options_.class_names, classes);
  if (classes <= kLargestTable) {
    const at::Tensor shown = matrix().to(at::kCPU).contiguous();
    const double* cell = shown.const_data_ptr<double>();
    LogTable table;
    table.columns.emplace_back("target \\ predicted");
    table.columns.insert(table.columns.end(), names.begin(), names.end());
    for (const std::string& row : names) {
      std::vector<LogValue> values{row};
      for (std::int64_t i = 0; i < classes; ++i, ++cell) {
        if (options_.normalize == Normalize::NONE)
          values.emplace_back(static_cast<std::int64_t>(*cell));
        else
          values.emplace_back(*cell);
      }
      table.rows.push_back(std::move(values));
    }
    all.emplace("table", std::move(table));
  }
  if (classes <= kLargestImage) {
    const at::Tensor share = normalized(Normalize::TRUE).to(at::kFloat);
    const std::int64_t pixels = std::max<std::int64_t>(1, (kWidthOfImage + classes - 1) / classes);
    const at::Tensor colours = at::stack({1 - share * 0.97F, 1 - share * 0.81F, 1 - share * 0.42F});
    all.emplace("image", LogImages{.images = colours.repeat_interleave(pixels, 1).repeat_interleave(pixels, 2)});
  }
  return all;
}

StateDict ConfusionMatrix::local_hparams() const { return describe(options_, confusion_matrix_options()); }

namespace entries {

Entry<Metrics> confusion_matrix() {
  return entry<ConfusionMatrix>("confusion_matrix", "Targets of each class by predicted class, as a table and an image",
                                confusion_matrix_options());
}

}  // namespace entries
}  // namespace composer::metrics

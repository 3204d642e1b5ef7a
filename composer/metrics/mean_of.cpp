#include "composer/metrics/mean_of.h"

#include <vector>

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/core/option.h"

namespace composer::metrics {
namespace {

std::vector<Option<MeanOfOptions>> mean_of_options() {
  using O = MeanOfOptions;
  return all_options(part("function", &O::function, "a function"), part("weight", &O::weight, "a function"),
                     option("better", &O::better, {{"higher", Better::HIGHER}, {"lower", Better::LOWER}}),
                     option("name", &O::name).not_empty());
}

}  // namespace

MeanOf::MeanOf(MeanOfOptions options) : options_(checked("MeanOf", std::move(options), mean_of_options())) {
  if (!options_.function) throw ConfigError(name(), ": function is required");
}
MeanOf::~MeanOf() = default;

void MeanOf::update(const Outputs& outputs, const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor values = options_.function(batch, outputs);
  if (!values.defined()) throw DataError(name(), ": function returned an undefined tensor");
  if (options_.weight) {
    const at::Tensor weight = options_.weight(batch, outputs);
    if (!weight.defined()) throw DataError(name(), ": weight returned an undefined tensor");
    const bool fits = weight.dim() <= values.dim() && at::is_expandable_to(weight.sizes(), values.sizes());
    if (!fits)
      throw DataError(name(), ": weight must fit the values ", values.sizes(), " of function, got ", weight.sizes());
    const at::Tensor weights = weight.to(values.device(), at::kDouble).expand(values.sizes());
    // A value that does not count may be anything: of a sample that is masked it is often NaN.
    over_.add((values.to(at::kDouble) * weights).masked_fill(weights.eq(0), 0).sum());
    under_.add(weights.sum());
  } else if (values.dim() == 0) {
    const std::int64_t samples = batch.front().dim() == 0 ? 1 : batch.front().size(0);
    over_.add(values.to(at::kDouble) * samples);
    under_.add(samples, values.device());
  } else {
    over_.add(values.sum(at::kDouble));
    under_.add(values.numel(), values.device());
  }
}

StateDict MeanOf::local_hparams() const { return describe(options_, mean_of_options()); }

}  // namespace composer::metrics

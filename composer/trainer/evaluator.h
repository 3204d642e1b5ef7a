#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/metric.h"
#include "composer/data/data_spec.h"
#include "composer/step/microbatch_size.h"

namespace composer {

// One evaluation: a loader, how often to run it, and what to measure. Unset fields take the trainer's values.
struct Evaluator {
  std::string label = {};  // prefix of its metrics: metrics/<label>/<name>; empty: "eval", "eval_2", ...
  AnyDataSpec dataloader = {};
  std::optional<Metrics> metrics = {};                        // unset: the metrics of the model
  std::optional<std::vector<std::string>> metric_names = {};  // regular expressions; unset: all metrics, {}: none
  OptionalInterval eval_interval = {};
  // Number of batches of the loader to use; unset: the trainer's; -1: all.
  std::optional<std::int64_t> subset_num_batches = {};
  // Samples per forward pass; unset: whole batches; "auto": begins with whole batches and halves the size when out of
  // memory, within microbatch_memory.
  std::optional<MicrobatchSize> device_eval_microbatch_size = {};
};

// The type of the trainer's eval_dataloader: one or several loaders, or evaluators.
class COMPOSER_EXPORT Evaluators {
 public:
  Evaluators() = default;
  Evaluators(Evaluator evaluator) { list_.push_back(std::move(evaluator)); }
  Evaluators(std::initializer_list<Evaluator> evaluators) : list_(evaluators) {}
  Evaluators(std::vector<Evaluator> evaluators) : list_(std::move(evaluators)) {}
  template <class... T>
  requires(sizeof...(T) > 0 &&
           ((detail::LoaderOrSpec<T> || std::derived_from<std::remove_cvref_t<T>, AnyDataSpec>)&&...))
      Evaluators(T&&... loaders) {
    (list_.push_back({.dataloader = AnyDataSpec(std::forward<T>(loaders))}), ...);
  }

  // Returns the evaluators with every label and subset set. Throws ConfigError for a duplicate label, a missing loader,
  // an invalid size or a metric_names that is not a regular expression.
  std::vector<Evaluator> checked(std::int64_t default_subset) const;
  // Limits each evaluator to `subset` batches, overriding its own limit; -1: unchanged.
  Evaluators cut_to(std::int64_t subset) const;
  bool empty() const { return list_.empty(); }

 private:
  std::vector<Evaluator> list_;
};

}  // namespace composer

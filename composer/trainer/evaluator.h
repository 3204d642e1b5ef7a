#pragma once
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/interval.h"
#include "composer/core/metric.h"
#include "composer/data/data_spec.h"
#include "composer/step/microbatch_size.h"

namespace composer {

// One thing to evaluate on: a loader, how often, and what to measure. What is not set is the trainer's.
struct Evaluator {
  std::string label = {};  // of its metrics: metrics/<label>/<name>; empty: "eval", "eval_2", ...
  AnyDataSpec dataloader = {};
  std::optional<Metrics> metrics = {};                        // unset: those of the model
  std::optional<std::vector<std::string>> metric_names = {};  // regular expressions; unset: all metrics, {}: none
  OptionalInterval eval_interval = {};
  std::optional<std::int64_t> subset_num_batches = {};  // of the loader's batches; -1: all
  // Samples; unset: whole batches; "auto": these, and half as many whenever memory is short, within microbatch_memory.
  std::optional<MicrobatchSize> device_eval_microbatch_size = {};
};

// What the trainer's eval_dataloader accepts: one or several loaders, or evaluators.
class COMPOSER_EXPORT Evaluators {
 public:
  Evaluators() = default;
  Evaluators(Evaluator evaluator) { list_.push_back(std::move(evaluator)); }
  Evaluators(std::initializer_list<Evaluator> evaluators) : list_(evaluators) {}
  Evaluators(std::vector<Evaluator> evaluators) : list_(std::move(evaluators)) {}
  template <class... T>
  requires(sizeof...(T) > 0 && (std::constructible_from<AnyDataSpec, T> && ...)) Evaluators(T&&... loaders) {
    (list_.push_back({.dataloader = AnyDataSpec(std::forward<T>(loaders))}), ...);
  }

  // With every label and subset filled in. Throws ConfigError for a label that is there twice, a missing loader, a bad
  // size or a metric_names that is no regular expression.
  std::vector<Evaluator> checked(std::int64_t default_subset) const;
  Evaluators cut_to(std::int64_t subset) const;  // each to so many batches, whatever it says; -1: as they are
  bool empty() const { return list_.empty(); }

 private:
  std::vector<Evaluator> list_;
};

}  // namespace composer

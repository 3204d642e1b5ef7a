#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer {

class StateDict;

enum class Better : std::uint8_t { HIGHER, LOWER };

// A figure over many batches. update() adds a batch to what has been accumulated, on the batch's device and without
// reading anything on the host; compute() is the figure of all samples since reset(), so a last batch that is smaller
// weighs by its size. Deriving from it: keep sums as tensors, and divide in compute().
class COMPOSER_EXPORT Metric {
 public:
  virtual ~Metric();

  virtual std::string name() const = 0;  // as in metrics/train/<name>
  virtual Better better() const = 0;     // whether more of it is better; stoppers and best-k ask
  virtual void update(const Outputs& outputs, const Batch& batch) = 0;
  virtual at::Tensor compute() const = 0;  // 0-d; NaN if nothing was added
  virtual void reset() = 0;
  // One of the same kind with nothing accumulated: each loader has its own.
  virtual std::shared_ptr<Metric> fresh() const = 0;

  // Calls `visit` for each tensor that update() adds to, always in the same order and under a name of its own.
  // compute() depends on these tensors alone, and the sums of two sets of batches, added, are those of all of them.
  // That allows to store a metric, and to reduce it over processes. `visit` may replace a tensor by one of the same
  // dtype and device. A tensor is undefined before the first update. Without sums, as by default, a metric can be
  // neither stored nor reduced; its header says so.
  using VisitSum = std::function<void(std::string_view name, at::Tensor& sum)>;
  virtual void visit_sums(const VisitSum& visit);

  // The options by name, which ranks compare; by default none. docs/metrics.md has an example.
  virtual StateDict local_hparams() const;
};

// The metrics of one loader: {MulticlassAccuracy(), CrossEntropy()}. Each by value, or as shared_ptr.
class COMPOSER_EXPORT Metrics {
 public:
  Metrics() = default;
  template <class... T>
  requires(sizeof...(T) > 0 && !(std::same_as<std::remove_cvref_t<T>, Metrics> || ...)) Metrics(T&&... metrics) {
    (add(std::forward<T>(metrics)), ...);
  }

  void add(std::shared_ptr<Metric> metric) { list_.push_back(std::move(metric)); }
  template <std::derived_from<Metric> T>
  void add(T metric) {
    list_.push_back(std::make_shared<T>(std::move(metric)));
  }

  Metrics fresh() const;
  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::vector<std::shared_ptr<Metric>> list_;
};

}  // namespace composer

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

// A value that is computed over many batches. update() accumulates a batch, on the batch's device and without reading
// anything on the host. compute() returns the value for all samples since reset(); a smaller last batch has a smaller
// weight. Derived classes keep sums as tensors, and divide in compute().
class COMPOSER_EXPORT Metric {
 public:
  virtual ~Metric();

  virtual std::string name() const = 0;  // as in metrics/train/<name>
  // Which values are better; used by early stopping and to keep the best checkpoints.
  virtual Better better() const = 0;
  virtual void update(const Outputs& outputs, const Batch& batch) = 0;
  virtual at::Tensor compute() const = 0;  // 0-d; NaN if nothing was added
  virtual void reset() = 0;
  // Returns a metric of the same kind with nothing accumulated; each loader has its own.
  virtual std::shared_ptr<Metric> fresh() const = 0;

  // Calls `visit` for each tensor that update() adds to, always in the same order, with a unique name for each.
  // compute() must depend on these tensors alone, and the sums for two sets of batches, added, must be the sums for all
  // of these batches. This allows a metric to be stored, and to be reduced over processes. `visit` may replace a tensor
  // by one with the same dtype and device. A tensor is undefined before the first update. By default there are no sums:
  // such a metric can be neither stored nor reduced, and its header says so.
  using VisitSum = std::function<void(std::string_view name, at::Tensor& sum)>;
  virtual void visit_sums(const VisitSum& visit);

  // Its options by name, which are compared between ranks; none by default. docs/reference/metrics.md has an example.
  virtual StateDict local_hparams() const;
};

// The metrics of one loader: {MulticlassAccuracy(), CrossEntropy()}. Each is given by value, or as a shared_ptr.
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

#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include "composer/core/error.h"
#include "composer/core/logger.h"
#include "composer/core/state.h"
#include "composer/loggers/metric_buffer.h"
#include "composer/loggers/string_map.h"

namespace composer::loggers {

// Whether it is one of the means over an epoch that the trainer logs. Loggers that show means of their own leave it
// out.
inline bool is_mean_of_epoch(std::string_view key) {
  return (key.starts_with("loss/train/") || key.starts_with("metrics/")) && key.ends_with("_epoch");
}

// The means of training losses and metrics over batches, weighted by the number of samples. On a GPU, each batch costs
// one addition per value, and nothing waits for the device before mean_of().
class BatchMeans {
 public:
  void begin_fit(const State& state) {
    clear();
    metrics_ = join("metrics/", state.dataloader_label, '/');  // metrics of the loader
  }
  bool takes(std::string_view key) const {
    return (key.starts_with("loss/train/") || key.starts_with(metrics_)) && !is_mean_of_epoch(key);
  }

  // Sets a value of the current batch.
  void set(std::string_view key, const LogValue& value) { batch_.set(key, value); }

  // To be called at BATCH_END.
  void count_batch(const State& state) {
    const std::int64_t before = state.previous_timestamp ? state.previous_timestamp->sample : 0;
    const std::int64_t samples = state.timestamp.sample - before;
    // Samples are not counted, so batches have equal weight.
    const double weight = state.timestamp.sample > 0 ? static_cast<double>(samples) : 1;
    for (const auto* entry : batch_.entries()) add(sums_[entry->key], entry->value, weight);
    batch_.clear();
  }
  // Drops what was logged since the last batch, because it belongs to no batch.
  void end_epoch() { batch_.clear(); }
  void clear() { sums_.clear(), batch_.clear(); }

  // The mean. Returns `value` itself if the key has no mean, or if no batch was counted.
  LogValue mean_of(std::string_view key, const LogValue& value) {
    const Sum* sum = sums_.find(key);
    if (sum == nullptr || !(sum->weight > 0)) return value;
    return (sum->on_host + (sum->on_device.defined() ? to_number(LogValue(sum->on_device)) : 0)) / sum->weight;
  }

 private:
  struct Sum {
    double on_host = 0, weight = 0;
    at::Tensor on_device;
  };

  static void add(Sum& sum, const LogValue& value, double weight) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (std::holds_alternative<std::string>(value) || (tensor != nullptr && !is_number(*tensor))) return;
    sum.weight += weight;
    if (tensor == nullptr) {
      sum.on_host += to_number(value) * weight;
      return;
    }
    const at::NoGradGuard no_grad;
    if (!sum.on_device.defined()) sum.on_device = at::zeros_like(*tensor, at::kFloat);
    sum.on_device.add_(*tensor, weight);
  }
  static bool is_number(const at::Tensor& tensor) {
    return tensor.defined() && tensor.numel() == 1 && !tensor.is_complex();
  }

  MetricBuffer batch_;
  StringMap<Sum> sums_;
  std::string metrics_ = "metrics/train/";
};

}  // namespace composer::loggers

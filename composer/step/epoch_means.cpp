#include "composer/step/epoch_means.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"

namespace composer {
namespace {

bool is_one_number(const at::Tensor& value) {
  return value.defined() && value.numel() == 1 && !value.is_complex() && value.layout() == at::kStrided;
}

}  // namespace

void EpochMeans::begin_batch(const Timestamp& now, std::int64_t samples) {
  if (now.batch_in_epoch == 0) clear();
  added_ = 0;
  const bool follows = batches_ == now.batch_in_epoch;
  const double weight = now.sample + samples > 0 ? static_cast<double>(samples) : 1;
  weight_of_batch_ = follows ? weight : 0;
  if (!follows) return;
  ++batches_;
  weight_ += weight;
}

void EpochMeans::add(std::span<const LogEntry> values) {
  if (weight_of_batch_ == 0) return;
  for (const auto& [key, value] : values) {
    const auto* tensor = std::get_if<at::Tensor>(&value);
    if (tensor == nullptr || !is_one_number(*tensor)) continue;
    at::Tensor& sum = sum_of(key, added_++, *tensor);
    if (tensor->is_cpu() && tensor->scalar_type() == at::kFloat) {
      *sum.mutable_data_ptr<double>() += weight_of_batch_ * static_cast<double>(*tensor->const_data_ptr<float>());
    } else {
      const at::NoGradGuard no_grad;
      sum.add_(tensor->reshape({}), weight_of_batch_);
    }
  }
}

at::Tensor& EpochMeans::sum_of(std::string_view key, std::size_t likely_place, const at::Tensor& value) {
  std::size_t place = likely_place;
  if (place >= sums_.size() || sums_[place].key != key)
    for (place = 0; place < sums_.size() && sums_[place].key != key;) ++place;
  if (place == sums_.size())
    sums_.push_back({std::string(key), at::zeros({}, at::TensorOptions(value.device()).dtype(at::kDouble))});
  at::Tensor& sum = sums_[place].sum;
  if (sum.device() != value.device()) sum = sum.to(value.device());  // loaded
  return sum;
}

void EpochMeans::log(const Timestamp& now, Logger& logger) {
  if (batches_ > 0 && batches_ == now.batch_in_epoch && weight_ > 0 && !logger.empty()) {
    std::vector<std::string> keys;
    std::vector<LogEntry> means;
    keys.reserve(sums_.size());
    for (const auto& [key, sum] : sums_) {
      keys.push_back(join(key, "_epoch"));
      means.push_back({keys.back(), LogValue(sum.is_cpu() ? *sum.const_data_ptr<double>() / weight_ : 0.0)});
      if (!sum.is_cpu()) means.back().value = sum.div(weight_);
    }
    if (!means.empty()) logger.log_metrics(means);
  }
  clear();
}

void EpochMeans::visit_state(StateVisitor& visit) {
  std::vector<std::string> keys;
  std::vector<at::Tensor> sums;
  for (const auto& [key, sum] : sums_) keys.push_back(key), sums.push_back(sum);
  visit("batches", batches_), visit("weight", weight_), visit("keys", keys), visit("sums", sums);
  if (!visit.is_loading()) return;
  sums_.clear();
  const auto is_sum = [](const at::Tensor& sum) { return sum.dim() == 0 && sum.scalar_type() == at::kDouble; };
  if (keys.size() != sums.size() || !std::ranges::all_of(sums, is_sum)) return clear();
  for (std::size_t i = 0; i < keys.size(); ++i) sums_.push_back({std::move(keys[i]), std::move(sums[i])});
}

}  // namespace composer

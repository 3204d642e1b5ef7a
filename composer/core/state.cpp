#include "composer/core/state.h"

#include <array>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/warning_route.h"

namespace composer {
namespace {

// Every program that trains has a State, so its warnings reach libtorch's handlers from the start.
[[maybe_unused]] const detail::WarningRoute routed = detail::warning_route = &detail::warn_through_libtorch;

constexpr std::array<std::pair<Precision, std::string_view>, 3> kPrecisions = {
    {{Precision::FP32, "fp32"}, {Precision::AMP_BF16, "amp_bf16"}, {Precision::AMP_FP16, "amp_fp16"}}};

}  // namespace

std::string_view to_string(Precision precision) {
  for (const auto& [value, text] : kPrecisions)
    if (value == precision) return text;
  return "unknown";
}

Precision parse_precision(std::string_view text) {
  for (const auto& [value, name] : kPrecisions)
    if (name == text) return value;
  throw ConfigError("precision: expected fp32, amp_bf16 or amp_fp16, got \"", text, '"');
}

void MetricValues::set(std::string_view label, std::string_view name, at::Tensor value) {
  auto of_label = values_.find(label);
  if (of_label == values_.end()) of_label = values_.emplace(std::string(label), ByName()).first;
  auto slot = of_label->second.find(name);
  if (slot == of_label->second.end())
    of_label->second.emplace(std::string(name), std::move(value));
  else
    slot->second = std::move(value);
}

const at::Tensor* MetricValues::find(std::string_view label, std::string_view name) const {
  const auto of_label = values_.find(label);
  if (of_label == values_.end()) return nullptr;
  const auto slot = of_label->second.find(name);
  return slot == of_label->second.end() ? nullptr : &slot->second;
}

double MetricValues::at(std::string_view label, std::string_view name) const {
  if (const at::Tensor* value = find(label, name)) return value->item<double>();
  std::string reported;
  for (const auto& [other, by_name] : values_)
    for (const auto& [metric, value] : by_name) reported += join(reported.empty() ? "" : ", ", other, '/', metric);
  throw ConfigError("there is no metric \"", label, "/", name,
                    "\"; reported are: ", reported.empty() ? "none yet" : reported);
}

double State::elapsed_duration() const {
  if (!max_duration) throw ConfigError("max_duration is not set, so there is no share of it that is done");
  const double limit = max_duration->as_double();
  return limit == 0 ? 1 : timestamp.get(max_duration->unit()).as_double() / limit;
}

}  // namespace composer

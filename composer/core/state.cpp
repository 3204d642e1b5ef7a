#include "composer/core/state.h"

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/core/precision_names.h"
#include "composer/core/warning_route.h"

namespace composer {
namespace {

// Sets the route of warnings: every program that trains has a State, so its warnings reach libtorch's handlers from the
// start.
[[maybe_unused]] const detail::WarningRoute routed = detail::warning_route = &detail::warn_through_libtorch;

void outdate_all(auto& by_name) {
  for (auto& [name, reported] : by_name) reported.is_current = false;
}

}  // namespace

std::string_view to_string(Precision precision) {
  for (const auto& [text, value] : kPrecisions)
    if (value == precision) return text;
  return "unknown";
}

Precision parse_precision(std::string_view text) {
  for (const auto& [name, value] : kPrecisions)
    if (name == text) return value;
  throw ConfigError("precision: expected fp32, amp_bf16 or amp_fp16, got \"", text, '"');
}

const Reported* MetricValues::known(std::string_view label, std::string_view name) const {
  const auto of_label = all_.find(label);
  if (of_label == all_.end()) return nullptr;
  const auto of_name = of_label->second.find(name);
  return of_name == of_label->second.end() ? nullptr : &of_name->second;
}

void MetricValues::set(std::string_view label, std::string_view name, at::Tensor value, std::optional<Better> better) {
  auto of_label = all_.find(label);
  if (of_label == all_.end()) of_label = all_.try_emplace(std::string(label)).first;
  auto of_name = of_label->second.find(name);
  if (of_name == of_label->second.end()) of_name = of_label->second.try_emplace(std::string(name)).first;
  Reported& reported = of_name->second;
  reported.value = std::move(value);
  reported.is_current = true;
  reported.of_last_step = false;
  if (better) reported.better = better;
}

const at::Tensor* MetricValues::find(std::string_view label, std::string_view name) const {
  const Reported* const reported = known(label, name);
  return reported ? &reported->value : nullptr;
}

bool MetricValues::is_current(std::string_view label, std::string_view name) const {
  const Reported* const reported = known(label, name);
  return reported && reported->is_current;
}

void MetricValues::weights_changed() {
  for (auto& [label, by_name] : all_) outdate_all(by_name);
}

void MetricValues::stepped() {
  for (auto& [label, by_name] : all_)
    for (auto& [name, reported] : by_name) reported.of_last_step = std::exchange(reported.is_current, false);
}

void MetricValues::outdate(std::string_view label) {
  if (const auto of_label = all_.find(label); of_label != all_.end()) outdate_all(of_label->second);
}

void MetricValues::declare(std::string_view label, std::string_view name, Better better) {
  if (known(label, name)) all_.find(label)->second.find(name)->second.better = better;
}

std::optional<Better> MetricValues::better(std::string_view label, std::string_view name) const {
  const Reported* const reported = known(label, name);
  return reported ? reported->better : std::nullopt;
}

double MetricValues::at(std::string_view label, std::string_view name) const {
  if (const at::Tensor* value = find(label, name)) return value->item<double>();
  std::string there;
  for (const auto& [other, by_name] : all_)
    for (const auto& [metric, reported] : by_name) there += join(there.empty() ? "" : ", ", other, '/', metric);
  throw ConfigError("there is no metric \"", label, "/", name,
                    "\"; reported are: ", there.empty() ? "none yet" : there);
}

double State::elapsed_duration() const {
  if (!max_duration) throw ConfigError("max_duration is not set, so there is no share of it that is done");
  const double limit = max_duration->as_double();
  return limit == 0 ? 1 : timestamp.get(max_duration->unit()).as_double() / limit;
}

}  // namespace composer

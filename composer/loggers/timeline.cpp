#include "composer/loggers/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>

#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

namespace composer::loggers {
namespace {

constexpr std::size_t kStacked = 1024;  // a 0-d tensor on a GPU occupies 512 bytes, in a stack 4

std::optional<std::uint32_t> growth(std::int64_t from, std::int64_t to) {
  const std::int64_t by = to - from;
  if (by < 0 || by > std::numeric_limits<std::uint32_t>::max()) return {};
  return static_cast<std::uint32_t>(by);
}

bool is_float(double value) { return std::isnan(value) || static_cast<double>(static_cast<float>(value)) == value; }

// Adds `value` if the numbers can hold it exactly.
struct AppendScalar {
  const Scalar& value;
  bool operator()(Runs& runs) const {
    const auto* whole = std::get_if<std::int64_t>(&value);
    if (whole != nullptr) runs.add(*whole);
    return whole != nullptr;
  }
  bool operator()(std::deque<float>& floats) const {
    const auto* number = std::get_if<double>(&value);
    const bool fits = number != nullptr && is_float(*number);
    if (fits) floats.push_back(static_cast<float>(*number));
    return fits;
  }
  bool operator()(std::deque<double>& doubles) const {
    const auto* number = std::get_if<double>(&value);
    if (number != nullptr) doubles.push_back(*number);
    return number != nullptr;
  }
  bool operator()(std::deque<Scalar>& scalars) const {
    scalars.push_back(value);
    return true;
  }
};

struct ToScalars {
  std::vector<Scalar> operator()(const Runs& runs) const { return (*this)(runs.all()); }
  template <class Sequence>
  std::vector<Scalar> operator()(const Sequence& values) const {
    std::vector<Scalar> scalars;
    scalars.reserve(values.size());
    for (const auto& value : values) {
      if constexpr (std::is_same_v<typename Sequence::value_type, float>)
        scalars.emplace_back(static_cast<double>(value));
      else
        scalars.emplace_back(value);
    }
    return scalars;
  }
};

}  // namespace

std::int64_t Timeline::add(const Timestamp& now) {
  if (!steps_.empty() && now == last_) return static_cast<std::int64_t>(steps_.size()) - 1;
  const auto samples = growth(last_.sample, now.sample), tokens = growth(last_.token, now.token);
  if (samples && tokens && !steps_.empty() && last_.to_next_batch(*samples, *tokens, now.batch_wct) == now) {
    steps_.push_back({*samples, *tokens, now.batch_wct});
  } else {
    jumps_.emplace_back(steps_.size(), now);
    steps_.push_back({});
  }
  last_ = now;
  return static_cast<std::int64_t>(steps_.size()) - 1;
}

Timestamp Timeline::at(std::int64_t index) const {
  auto i = static_cast<std::size_t>(index);
  if (i + 1 == steps_.size()) return last_;
  const auto after = std::ranges::upper_bound(jumps_, i, {}, &std::pair<std::size_t, Timestamp>::first);
  const auto& [from, at] = *std::prev(after);
  Timestamp time = at;
  for (std::size_t step = from + 1; step <= i; ++step)
    time = time.to_next_batch(steps_[step].samples, steps_[step].tokens, steps_[step].duration);
  return time;
}

std::vector<Timestamp> Timeline::all() const {
  std::vector<Timestamp> times;
  times.reserve(steps_.size());
  auto jump = jumps_.begin();
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (jump != jumps_.end() && jump->first == i)
      times.push_back(jump++->second);
    else
      times.push_back(times.back().to_next_batch(steps_[i].samples, steps_[i].tokens, steps_[i].duration));
  }
  return times;
}

void Runs::add(std::int64_t value) {
  ++size_;
  // Computed unsigned: the distance of two numbers may overflow, and wraps back when it is added.
  const auto minus = [](std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
  };
  if (runs_.empty()) return runs_.push_back({value, 0, 1});
  auto& [first, stride, count] = runs_.back();
  if (count == 1) {
    stride = minus(value, first);
    count = 2;
  } else if (static_cast<std::uint64_t>(minus(value, first)) ==
             static_cast<std::uint64_t>(stride) * static_cast<std::uint64_t>(count)) {
    ++count;
  } else {
    runs_.push_back({value, 0, 1});
  }
}

std::int64_t Runs::last() const {
  const auto& [first, stride, count] = runs_.back();
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(first) +
                                   static_cast<std::uint64_t>(stride) * static_cast<std::uint64_t>(count - 1));
}

std::vector<std::int64_t> Runs::all() const {
  std::vector<std::int64_t> values;
  values.reserve(static_cast<std::size_t>(size_));
  for (const auto& [first, stride, count] : runs_) {
    auto value = static_cast<std::uint64_t>(first);
    for (std::int64_t i = 0; i < count; ++i, value += static_cast<std::uint64_t>(stride))
      values.push_back(static_cast<std::int64_t>(value));
  }
  return values;
}

void Values::add(const Scalar& value) {
  // Keeps the order of a metric that is sometimes a number and sometimes a tensor.
  if (!pending_.empty()) read_pending();
  while (!std::visit(AppendScalar{value}, values_)) widen(value);
}

void Values::add(double value) {
  auto* doubles = std::get_if<std::deque<double>>(&values_);
  if (doubles != nullptr && pending_.empty())
    doubles->push_back(value);
  else
    add(Scalar(value));
}

void Values::add(std::int64_t value) {
  auto* runs = std::get_if<Runs>(&values_);
  if (runs != nullptr && pending_.empty())
    runs->add(value);
  else
    add(Scalar(value));
}

void Values::widen(const Scalar& value) {
  const auto* runs = std::get_if<Runs>(&values_);
  const auto* floats = std::get_if<std::deque<float>>(&values_);
  const bool is_number = std::holds_alternative<double>(value);
  if (is_number && runs != nullptr && runs->size() == 0) {
    values_ = std::deque<float>();
  } else if (is_number && floats != nullptr) {
    values_ = std::deque<double>(floats->begin(), floats->end());
  } else {
    const std::vector<Scalar> scalars = all();
    values_ = std::deque<Scalar>(scalars.begin(), scalars.end());
  }
}

void Values::add_pending(const at::Tensor& tensor) {
  pending_.push_back(tensor.requires_grad() ? tensor.detach() : tensor);
  if (++pending_scalars_ < kStacked) return;
  const auto scalars = pending_.end() - static_cast<std::ptrdiff_t>(pending_scalars_);
  std::vector<at::Tensor> flat;
  for (auto tensor = scalars; tensor != pending_.end(); ++tensor) flat.push_back(tensor->reshape({}));
  pending_.erase(scalars, pending_.end());
  pending_.push_back(at::stack(flat));
  pending_scalars_ = 0;
}

void Values::read_pending() {
  if (pending_.empty()) return;
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : std::exchange(pending_, {})) flat.push_back(tensor.reshape({-1}));
  pending_scalars_ = 0;
  const at::Tensor on_host = at::cat(flat).to(at::kCPU);
  for (std::int64_t i = 0; i < on_host.numel(); ++i) add(read_scalar(on_host[i]));
}

Scalar Values::last() const {
  return std::visit(
      [](const auto& values) -> Scalar {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(values)>, Runs>)
          return values.last();
        else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(values)>, std::deque<Scalar>>)
          return values.back();
        else
          return static_cast<double>(values.back());
      },
      values_);
}

std::vector<Scalar> Values::all() const { return std::visit(ToScalars{}, values_); }

}  // namespace composer::loggers

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "composer/core/error.h"
#include "composer/trainer/divergence.h"
#include "composer/trainer/lr_finder.h"
#include "composer/util/text.h"

namespace composer {
namespace {

// Averages each value with all others, whose weights shrink by the factor `smoothing` per position of distance.
std::vector<double> smooth(const std::vector<double>& values, double smoothing) {
  std::vector<double> sums(values.size()), weights(values.size());
  const auto pass = [&](auto index_of) {
    double sum = 0, weight = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t at = index_of(i);
      sums[at] += smoothing * sum;  // without the value itself
      weights[at] += smoothing * weight;
      sum = values[at] + smoothing * sum;
      weight = 1 + smoothing * weight;
    }
  };
  pass([](std::size_t i) { return i; });
  pass([&](std::size_t i) { return values.size() - 1 - i; });
  for (std::size_t i = 0; i < values.size(); ++i) sums[i] = (values[i] + sums[i]) / (1 + weights[i]);
  return sums;
}

// Bounds losses to as far above those of the start as the lowest loss is below them. A loss that explodes at the end
// would otherwise hide how far it had fallen before.
std::vector<double> bounded(std::vector<double> losses, double smoothing) {
  if (losses.empty()) return losses;
  const auto averaged = static_cast<std::size_t>(std::ceil(1 / (1 - smoothing)));
  const std::size_t count = std::min(losses.size(), averaged);
  const double start = std::accumulate(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(count), 0.0) /
                       static_cast<double>(count);
  const double highest = 2 * start - std::ranges::min(losses);
  for (double& loss : losses) loss = std::min(loss, highest);
  return losses;
}

// Whether the smoothed loss is lower at `lowest` than at the start by more than the scatter of the losses makes likely.
bool falls(const std::vector<LrPoint>& points, std::size_t lowest, double smoothing) {
  constexpr double kDeviations = 3, kRounding = 1e-6;
  double squares = 0;
  for (std::size_t i = 0; i <= lowest; ++i) squares += std::pow(points[i].loss - points[i].smoothed, 2);
  const double averaged = (1 + smoothing) / (1 - smoothing);  // number of losses that one smoothed loss averages
  const double deviation = std::sqrt(squares / static_cast<double>(lowest + 1) / averaged);
  const double start = points.front().smoothed;
  return start - points[lowest].smoothed > kDeviations * deviation + kRounding * std::abs(start);
}

std::optional<double> steepest(const std::vector<LrPoint>& points, double smoothing) {
  if (points.size() < 3) return std::nullopt;
  const auto lowest =
      static_cast<std::size_t>(std::ranges::min_element(points, {}, &LrPoint::smoothed) - points.begin());
  if (lowest == 0 || !falls(points, lowest, smoothing)) return std::nullopt;
  const auto slope = [&](std::size_t i) {
    return (points[i + 1].smoothed - points[i - 1].smoothed) / std::log(points[i + 1].lr / points[i - 1].lr);
  };
  std::size_t best = 1;
  for (std::size_t i = 1; i <= std::min(lowest, points.size() - 2); ++i)
    if (slope(i) < slope(best)) best = i;
  return points[best].lr;
}

}  // namespace

bool Divergence::found(double loss) {
  average_ = smoothing_ * average_ + (1 - smoothing_) * loss;
  unseen_ *= smoothing_;
  const double smoothed = average_ / (1 - unseen_);
  lowest_ = std::min(lowest_, smoothed);
  return !std::isfinite(loss) || smoothed > stop_at_ * lowest_;
}

LrCurve LrCurve::of(const std::vector<double>& rates, const std::vector<double>& losses, const FindLrOptions& options) {
  LrCurve curve;
  Divergence divergence(options.smoothing, options.stop_at);
  std::vector<double> finite;
  for (std::size_t i = 0; i < std::min(rates.size(), losses.size()) && !curve.diverged; ++i) {
    curve.diverged = divergence.found(losses[i]);
    if (std::isfinite(losses[i])) finite.push_back(losses[i]);
  }
  const std::vector<double> smoothed = smooth(bounded(finite, options.smoothing), options.smoothing);
  for (std::size_t i = 0; i < finite.size(); ++i) curve.points.push_back({rates[i], finite[i], smoothed[i]});
  curve.suggestion = steepest(curve.points, options.smoothing);
  return curve;
}

std::string LrCurve::plot(const PlotOptions& options) const {
  LogPlot plot{.mark = suggestion, .x_name = "learning rate", .y_name = "loss (smoothed)"};
  double lowest = INFINITY;
  for (const LrPoint& point : points) {
    plot.x.push_back(point.lr);
    plot.y.push_back(point.smoothed);
    lowest = std::min(lowest, point.smoothed);
  }
  // Losses far above the start only show that training has diverged.
  if (!points.empty()) plot.top = points.front().smoothed + 0.3 * std::abs(points.front().smoothed - lowest);
  if (plot.top && *plot.top <= lowest) plot.top.reset();
  std::string text = plot.draw(options);
  if (suggestion) return text + "suggested learning rate: " + util::printed("%.2g", *suggestion) + '\n';
  return text + "no learning rate to suggest: the loss does not fall\n";
}

}  // namespace composer

#include "composer/data/weighted_draw.h"

#include <algorithm>
#include <cmath>

#include "composer/core/error.h"

namespace composer::data::detail {

WeightedDraw::WeightedDraw(const std::vector<double>& weights) : cells_(weights.size()) {
  // Divided by the largest, so that no sum overflows.
  const auto largest = std::ranges::max_element(weights);
  double sum = 0;
  for (const double weight : weights) sum += weight / *largest;
  std::vector<double> share(weights.size());  // 1: as much as a cell holds
  std::vector<std::size_t> less, more;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    share[i] = weights[i] / *largest / sum * static_cast<double>(weights.size());
    (share[i] < 1 ? less : more).push_back(i);
  }
  while (!less.empty() && !more.empty()) {
    const std::size_t small = less.back(), large = more.back();
    less.pop_back();
    cells_[small] = {static_cast<std::uint64_t>(share[small] * 0x1p64), static_cast<std::int64_t>(large)};
    share[large] -= 1 - share[small];
    if (share[large] >= 1) continue;
    more.pop_back();
    less.push_back(large);
  }
  // What remains differs from 1 by rounding alone, unless its weight is 0, which must never be drawn.
  more.insert(more.end(), less.begin(), less.end());
  for (const std::size_t i : more)
    cells_[i] = {0,
                 static_cast<std::int64_t>(weights[i] > 0 ? i : static_cast<std::size_t>(largest - weights.begin()))};
}

std::vector<std::int64_t> WeightedDraw::draw(std::int64_t count, RandomStream random) const {
  __extension__ using Wide = unsigned __int128;
  std::vector<std::int64_t> drawn(static_cast<std::size_t>(count));
  for (std::int64_t& index : drawn) {
    const Wide place = static_cast<Wide>(random.next()) * cells_.size();  // the cell, and the place in it
    const Cell& cell = cells_[static_cast<std::size_t>(place >> 64)];
    index = static_cast<std::uint64_t>(place) < cell.limit ? static_cast<std::int64_t>(place >> 64) : cell.other;
  }
  return drawn;
}

std::shared_ptr<const WeightedDraw> weighted(const char* who, const at::Tensor& weights) {
  if (!weights.defined()) return nullptr;
  if (weights.dim() != 1 || weights.numel() == 0 || weights.is_complex())
    throw DataError(who, ": weights must be real numbers [N], one for each sample, got ", weights.sizes(), " of ",
                    weights.scalar_type());
  const at::Tensor values = weights.detach().to(at::kCPU, at::kDouble).contiguous();
  const auto* first = values.const_data_ptr<double>();
  const std::vector<double> numbers(first, first + values.numel());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (!(numbers[i] >= 0) || !std::isfinite(numbers[i]))
      throw DataError(who, ": weights must be finite and >= 0, and that of sample ", i, " is ", numbers[i]);
  if (std::ranges::max(numbers) == 0) throw DataError(who, ": weights are all 0");
  return std::make_shared<const WeightedDraw>(numbers);
}

}  // namespace composer::data::detail

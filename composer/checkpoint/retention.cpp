#include "composer/checkpoint/retention.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace composer::saving {

namespace {

// Larger is better; no value is worse than every value.
std::pair<bool, double> worth(const Saved& saved, Better better) {
  if (!saved.has_value()) return {false, 0};
  return {true, better == Better::HIGHER ? saved.value : -saved.value};
}

}  // namespace

const Saved* best_of(const std::vector<Saved>& saved, Better better) {
  const Saved* best = nullptr;
  for (const Saved& one : saved)
    if (one.has_value() && (!best || worth(one, better) >= worth(*best, better))) best = &one;
  return best;
}

Retention retain(std::vector<Saved> saved, std::int64_t limit, std::optional<Better> better) {
  std::vector<std::size_t> counted;  // oldest first
  for (std::size_t i = 0; i < saved.size(); ++i)
    if (!saved[i].by_hand) counted.push_back(i);
  const std::size_t newest = counted.empty() ? 0 : counted.back();
  std::vector<bool> removed(saved.size(), false);
  while (limit > 0 && counted.size() > static_cast<std::size_t>(limit)) {
    auto victim = counted.begin();
    if (better) victim = std::ranges::min_element(counted, {}, [&](std::size_t i) { return worth(saved[i], *better); });
    removed[*victim] = *victim != newest;
    counted.erase(victim);
  }
  Retention result;
  for (std::size_t i = 0; i < saved.size(); ++i)
    if (removed[i])
      result.remove.push_back(std::move(saved[i].name));
    else
      result.keep.push_back(std::move(saved[i]));
  return result;
}

}  // namespace composer::saving

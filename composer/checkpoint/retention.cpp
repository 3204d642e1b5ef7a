#include "composer/checkpoint/retention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace composer::saving {

Retention retain(std::vector<Saved> saved, std::int64_t limit, const std::optional<Best>& best) {
  std::vector<std::size_t> counted;  // oldest first
  for (std::size_t i = 0; i < saved.size(); ++i)
    if (!saved[i].by_hand) counted.push_back(i);
  std::vector<bool> removed(saved.size(), false);
  const auto worth = [&](std::size_t i) {
    if (std::isnan(saved[i].value)) return -HUGE_VAL;
    return best->better == Better::HIGHER ? saved[i].value : -saved[i].value;
  };
  while (limit > 0 && counted.size() > static_cast<std::size_t>(limit)) {
    auto victim = counted.begin();
    if (best) victim = std::ranges::min_element(counted.begin(), counted.end() - 1, {}, worth);
    removed[*victim] = true;
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

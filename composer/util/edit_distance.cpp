#include "composer/util/edit_distance.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace composer::util {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> to(b.size() + 1);  // from the first letters of `a` to the first j of `b`
  std::iota(to.begin(), to.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(to[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = to[j + 1];
      to[j + 1] = std::min({replaced, to[j] + 1, to[j + 1] + 1});
    }
  }
  return to[b.size()];
}

}  // namespace composer::util

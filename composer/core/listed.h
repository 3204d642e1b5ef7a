#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <string>

#include "composer/core/error.h"

namespace composer {

// The elements of a range, separated by ", ". `text_of` converts an element to text, and may be a member. If there are
// more than `most`, the number of remaining elements follows.
template <class Range, class TextOf = std::identity>
std::string listed(const Range& range, TextOf text_of = {},
                   std::size_t most = std::numeric_limits<std::size_t>::max()) {
  std::string text;
  std::size_t count = 0;
  for (const auto& element : range) {
    if (count < most) text += join(count == 0 ? "" : ", ", std::invoke(text_of, element));
    ++count;
  }
  if (count > most) text += join(" and ", count - most, " more");
  return text;
}

}  // namespace composer

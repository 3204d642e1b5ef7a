#pragma once
#include <string>
#include <string_view>

#include "composer/loggers/string_map.h"

namespace composer::loggers {

// Converts keys by a function, and caches the results.
class KeyTexts {
 public:
  using Make = std::string (*)(std::string_view key);
  explicit KeyTexts(Make make) : make_(make) {}

  const std::string& operator[](std::string_view key) {
    std::string& text = texts_[key];
    if (text.empty()) text = make_(key);
    return text;
  }

 private:
  const Make make_;
  SequenceMap<std::string> texts_;
};

}  // namespace composer::loggers

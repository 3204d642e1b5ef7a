#pragma once
#include <concepts>
#include <cstdint>
#include <string_view>

#include "composer/core/export.h"

namespace composer {

// The number of samples that are trained at once: a number, 0 for the whole batch, or "auto" for as many as memory
// allows.
class COMPOSER_EXPORT MicrobatchSize {
 public:
  MicrobatchSize() = default;
  template <std::integral T>
  requires(!std::same_as<T, bool>) MicrobatchSize(T samples) : samples_(static_cast<std::int64_t>(samples)) {}
  template <std::convertible_to<std::string_view> T>
  MicrobatchSize(const T& text) : MicrobatchSize(parse(text)) {}

  static MicrobatchSize parse(std::string_view text);  // the text must be "auto"; throws ConfigError otherwise

  bool is_auto() const { return auto_; }
  std::int64_t samples() const { return samples_; }  // 0: the whole batch, or not known yet

 private:
  std::int64_t samples_ = 0;
  bool auto_ = false;
};

}  // namespace composer

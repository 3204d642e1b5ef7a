#pragma once
#include <array>
#include <chrono>

namespace composer::saving {

// Pauses before each new attempt at a failed write.
inline constexpr std::array kRetryPauses = {std::chrono::seconds(1), std::chrono::seconds(2), std::chrono::seconds(4)};

}  // namespace composer::saving

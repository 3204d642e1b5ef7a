#pragma once
#include <array>
#include <chrono>

namespace composer::saving {

// Before each new attempt to write what could not be written.
inline constexpr std::array kRetryPauses = {std::chrono::seconds(1), std::chrono::seconds(2), std::chrono::seconds(4)};

}  // namespace composer::saving

#pragma once
#include <cstdint>

namespace composer::formats {

// How operators that write into their inputs are recorded: as they are, or as those that return the result instead,
// which is lost if the input was a part of another tensor.
enum class InPlace : std::uint8_t { KEPT, REPLACED };

}  // namespace composer::formats

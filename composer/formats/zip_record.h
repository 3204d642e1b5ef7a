#pragma once
#include <cstddef>
#include <cstdint>

namespace composer::formats {

inline constexpr std::uint32_t kIn64 = 0xFFFFFFFF;  // means that the number is in the zip64 field
inline constexpr std::size_t kLocalRecord = 30;     // bytes of a local header, before the name and data of an entry

}  // namespace composer::formats

#pragma once
#include <cstdint>

namespace composer {

// Who multiplies float matrices on a CPU.
enum class Products : std::uint8_t { TUNED, LIBRARY, OWN };

}  // namespace composer

#pragma once
#include <cstdint>

namespace composer {

// Which kernels multiply float matrices on a CPU: the faster ones as measured by .tune, libtorch's, or this library's.
enum class Products : std::uint8_t { TUNED, LIBRARY, OWN };

}  // namespace composer

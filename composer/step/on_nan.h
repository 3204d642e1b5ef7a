#pragma once
#include <cstdint>

namespace composer {

// What happens when a training loss is NaN: the fit ends with an error before the weights are changed; or a warning
// names the first such batch, and training goes on; or nothing happens.
enum class OnNaN : std::uint8_t { STOP, WARN, IGNORE };

}  // namespace composer

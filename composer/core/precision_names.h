#pragma once
#include <array>
#include <utility>

#include "composer/core/state.h"

namespace composer {

inline constexpr std::array<std::pair<const char*, Precision>, 3> kPrecisions = {
    {{"fp32", Precision::FP32}, {"amp_bf16", Precision::AMP_BF16}, {"amp_fp16", Precision::AMP_FP16}}};

}  // namespace composer

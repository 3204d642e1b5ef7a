#pragma once
#include <torch/csrc/jit/api/module.h>

#include "composer/formats/in_place.h"
#include "composer/formats/torch_script.h"

namespace composer::formats {

// What write_torch_script() writes: a module with the tensors of `module` and the recorded function as its forward().
// The graph has the types and shapes of the examples. Throws as write_torch_script() does.
torch::jit::Module trace(const torch::nn::Module& module, const TracedFunction& function,
                         InPlace in_place = InPlace::KEPT);

}  // namespace composer::formats

#pragma once
#include <functional>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/tensors.h"

namespace composer::models::detail {

// Calls forward() of a module with the batch, or with the tensor in it that is called `input`.
using ModuleCall = std::function<at::Tensor(const Batch& batch, const std::string& input)>;

template <class Module, class Input>
constexpr bool kTakes = requires {
  static_cast<at::Tensor (Module::*)(Input)>(&Module::forward);
};

// The module must outlive the returned function.
template <class Module>
ModuleCall call_of(Module* module) {
  // Sequential::forward accepts any argument, so it must not count as taking a Batch.
  if constexpr (kTakes<Module, const Batch&> && !kTakes<Module, const at::Tensor&>)
    return [module](const Batch& batch, const std::string&) { return module->forward(batch); };
  else
    return [module](const Batch& batch, const std::string& input) -> at::Tensor {
      return module->forward(batch.at(input));
    };
}

}  // namespace composer::models::detail

#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "composer/surgery/layer.h"

namespace composer {

// All modules of one type below a module, with their names: modules_of<torch::nn::BatchNorm2d>(*model). It also finds
// modules in Layers, such as all modules of the ready models; libtorch's module->as<torch::nn::BatchNorm2d>() is null
// for these, because the parent's child is the Layer.
template <class Holder>
auto modules_of(const torch::nn::Module& root) {
  using Module = typename Holder::ContainedType;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> found;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    const auto layer = std::dynamic_pointer_cast<LayerImpl>(item.value());
    auto module = std::dynamic_pointer_cast<Module>(layer ? layer->module() : item.value());
    if (module) found.emplace_back(item.key(), std::move(module));
  }
  return found;
}

}  // namespace composer

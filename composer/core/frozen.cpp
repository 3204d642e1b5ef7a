#include "composer/core/frozen.h"

#include <utility>

#include "composer/core/model_access.h"

namespace composer {
namespace {

using Parameters = std::vector<at::Tensor>;

// What the objects of this thread keep frozen. Those that have ended have expired.
std::vector<std::weak_ptr<const Parameters>>& frozen_here() {
  thread_local std::vector<std::weak_ptr<const Parameters>> here;
  return here;
}

}  // namespace

Frozen::Frozen(torch::nn::Module& module) : Frozen(parameters(module)) {}

Frozen::Frozen(Parameters parameters) {
  std::erase_if(parameters, [](const at::Tensor& one) { return !one.requires_grad(); });
  parameters_ = std::make_shared<const Parameters>(std::move(parameters));
  std::erase_if(frozen_here(), [](const auto& one) { return one.expired(); });
  frozen_here().push_back(parameters_);
  for (const at::Tensor& one : *parameters_) one.set_requires_grad(false);
}

Frozen::~Frozen() {
  for (const at::Tensor& one : *parameters_) one.set_requires_grad(true);
}

Parameters Frozen::all() {
  Parameters all;
  for (const auto& one : frozen_here())
    if (const auto parameters = one.lock()) all.insert(all.end(), parameters->begin(), parameters->end());
  return all;
}

}  // namespace composer

#include "composer/dist/average.h"

#include <cstddef>
#include <map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include "composer/core/error.h"
#include "composer/dist/agreement.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

// Averages one piece. Its gradients are put one after another, so that they travel in one message.
void average(World& world, const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameter);
    if (gradient.layout() != at::kStrided)
      throw ConfigError("training in several processes: a gradient is sparse; use dense gradients");
    gradients.push_back(gradient.detach());
  }
  std::vector<at::Tensor> rows;
  rows.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) rows.push_back(gradient.reshape({-1}));
  const at::Tensor flat = at::cat(rows).div_(world.size());
  world.sum(flat);
  std::int64_t from = 0;
  for (at::Tensor& gradient : gradients) {
    gradient.copy_(flat.narrow(0, from, gradient.numel()).view(gradient.sizes()));
    from += gradient.numel();
  }
}

}  // namespace

void average_gradients(World& world, const std::vector<at::Tensor>& parameters, std::int64_t bucket_cap_mb) {
  if (world.is_alone()) return;
  const at::NoGradGuard no_grad;
  std::map<std::pair<at::ScalarType, std::string>, std::vector<at::Tensor>> kinds;
  const std::vector<bool> used = have_gradients(world, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (used[i]) kinds[{parameters[i].scalar_type(), parameters[i].device().str()}].push_back(parameters[i]);
  for (const auto& [kind, list] : kinds) {
    std::vector<at::Tensor> piece;
    std::size_t bytes = 0;
    for (const at::Tensor& parameter : list) {
      piece.push_back(parameter);
      bytes += parameter.nbytes();
      if (bytes < static_cast<std::size_t>(bucket_cap_mb) << 20) continue;
      average(world, std::exchange(piece, {}));
      bytes = 0;
    }
    if (!piece.empty()) average(world, piece);
  }
}

}  // namespace composer::dist

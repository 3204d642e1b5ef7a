#include "composer/dist/average.h"

#include <cstddef>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

std::vector<at::Tensor> with_gradient_somewhere(World& world, const std::vector<at::Tensor>& parameters) {
  const at::Tensor has = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kByte);
  for (std::size_t i = 0; i < parameters.size(); ++i) has.data_ptr<std::uint8_t>()[i] = parameters[i].grad().defined();
  world.max(has);
  std::vector<at::Tensor> used;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (has.const_data_ptr<std::uint8_t>()[i] != 0) used.push_back(parameters[i]);
  return used;
}

// One piece: the gradients one after another, so that they travel in one message.
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
  for (const at::Tensor& parameter : with_gradient_somewhere(world, parameters))
    kinds[{parameter.scalar_type(), parameter.device().str()}].push_back(parameter);
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

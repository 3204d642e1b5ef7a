#include "composer/algorithms/factorize_matrix.h"

#include <algorithm>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/im2col.h>
#include <ATen/ops/linalg_lstsq.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>

#include "composer/core/error.h"
#include "composer/util/share_of.h"

namespace composer::algorithms {
namespace {

at::Tensor solve(const at::Tensor& a, const at::Tensor& b) { return std::get<0>(at::linalg_lstsq(a, b)); }

}  // namespace

LowRankFactors low_rank(const at::Tensor& matrix, std::int64_t rank) {
  const at::NoGradGuard no_grad;
  const bool is_short = matrix.scalar_type() == at::kHalf || matrix.scalar_type() == at::kBFloat16;
  const auto [u, s, vt] = at::linalg_svd(is_short ? matrix.to(at::kFloat) : matrix, /*full_matrices=*/false);
  const at::Tensor root = s.narrow(0, 0, rank).sqrt();
  return {.a = (u.narrow(1, 0, rank) * root).to(matrix.scalar_type()),
          .b = (vt.narrow(0, 0, rank) * root.unsqueeze(1)).to(matrix.scalar_type()),
          .bias = {},
          .rank = rank};
}

LowRankFactors factorize_matrix(const at::Tensor& x, const at::Tensor& y, const at::Tensor& wa, const at::Tensor& wb,
                                const at::Tensor& bias, double rank, std::int64_t n_iters) {
  const at::NoGradGuard no_grad;
  const std::int64_t in = x.size(1), out = y.size(1), now = wa.size(1);
  const auto wanted = rank < 1 ? std::min(util::share_of(in, rank), now) : static_cast<std::int64_t>(rank);
  if (wanted < 1) throw ConfigError("factorize_matrix: rank ", rank, " of ", in, " inputs leaves nothing");
  const at::Tensor target = bias.defined() ? y - bias : y;
  if (wanted >= in || wanted >= out) return {.a = solve(x, target), .b = {}, .bias = bias};
  if (wanted >= now) return {.a = wa, .b = wb, .bias = bias};

  LowRankFactors found = low_rank(wb.defined() ? at::matmul(wa, wb) : wa, wanted);
  const at::Tensor whole = solve(x, target);
  for (std::int64_t i = 0; i < n_iters; ++i) {
    found.b = solve(at::matmul(x, found.a), target);
    found.a = solve(found.b.t(), whole.t()).t();
  }
  found.bias = (target - at::matmul(at::matmul(x, found.a), found.b)).mean(0);
  if (bias.defined()) found.bias += bias;
  return found;
}

LowRankFactors factorize_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double rank,
                                std::int64_t n_iters, std::int64_t padding) {
  const at::NoGradGuard no_grad;
  const std::int64_t out = weight.size(0), height = weight.size(2), width = weight.size(3);
  const at::Tensor patches = at::im2col(x, {height, width}, /*dilation=*/{1, 1}, {padding, padding}, /*stride=*/{1, 1})
                                 .transpose(1, 2)
                                 .flatten(0, 1);
  const at::Tensor matrix = weight.flatten(1).t();
  at::Tensor y = at::matmul(patches, matrix);
  if (bias.defined()) y = y + bias;
  LowRankFactors found = factorize_matrix(patches, y, matrix, {}, {}, rank, n_iters);
  found.a = found.a.t().reshape({-1, weight.size(1), height, width});
  if (found.b.defined()) found.b = found.b.t().reshape({out, -1, 1, 1});
  return found;
}

}  // namespace composer::algorithms

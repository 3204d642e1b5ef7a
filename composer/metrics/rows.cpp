#include "composer/metrics/rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/searchsorted.h>

namespace composer::metrics {

void append_rows(std::vector<at::Tensor>& list, const at::Tensor& rows) {
  if (rows.size(0) > 0) list.push_back(rows.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true));
}

at::Tensor joined(const std::vector<at::Tensor>& list) {
  if (list.empty()) return {};
  return list.size() == 1 ? list.front() : at::cat(list);
}

at::Tensor count_smaller(const at::Tensor& sorted) {
  return at::searchsorted(sorted, sorted, /*out_int32=*/false, /*right=*/false);
}

at::Tensor count_not_larger(const at::Tensor& sorted) {
  return at::searchsorted(sorted, sorted, /*out_int32=*/false, /*right=*/true);
}

}  // namespace composer::metrics

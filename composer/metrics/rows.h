#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

namespace composer::metrics {

// Appends a copy of `rows` in float64, unless there are none. A copy, because models may write their outputs anew.
void append_rows(std::vector<at::Tensor>& list, const at::Tensor& rows);

// All rows in one tensor; undefined if there are none.
at::Tensor joined(const std::vector<at::Tensor>& list);

// For sorted values [..., n]: how many are smaller than each, and how many are not larger.
at::Tensor count_smaller(const at::Tensor& sorted);
at::Tensor count_not_larger(const at::Tensor& sorted);

}  // namespace composer::metrics

#pragma once
#include <ATen/core/Tensor.h>

namespace composer::models::detail {

// The first T rows of a table of positions, for tokens [N, T]. A program that is recorded meanwhile (TorchScript, ONNX)
// counts the tokens itself, so it takes sequences of other lengths as well.
at::Tensor first_rows(const at::Tensor& table, const at::Tensor& tokens);

}  // namespace composer::models::detail

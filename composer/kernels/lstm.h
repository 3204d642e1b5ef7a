#pragma once
// One layer of an LSTM in one direction, in float on the CPU.
#include <cstdint>

#include "composer/core/export.h"

namespace composer::kernels {

// All sizes are at least 1. In the comments below: T steps, N samples, I inputs, H hidden. The order of gates is i, f,
// g, o.
struct LstmSizes {
  std::int64_t steps, samples, inputs, hidden;
};

// All matrices are contiguous.
struct LstmOperands {
  const float* input;        // T x N x I
  const float *w_ih, *w_hh;  // 4H x I, 4H x H
  const float *hx, *cx;      // N x H
  bool reverse = false;      // goes from the last step to the first
};

// Size of the workspace that forward fills for backward: T x N x 4H gates, T x N x H cells, T x N x H tanh of the
// cells.
COMPOSER_EXPORT std::int64_t lstm_workspace_floats(const LstmSizes& sizes);

// Results of forward. bias: 4H, or nullptr. output: T x N x H. hy, cy: N x H. workspace: nullptr if no backward pass
// follows. Forward and backward use libtorch's threads. Their results have the same bits for any number of threads and
// on any processor, because the products are computed as gemm() does and samples are independent. They throw like
// gemm().
struct LstmResults {
  float *output, *hy, *cy, *workspace;
};
COMPOSER_EXPORT void lstm_forward(const LstmSizes& sizes, const LstmOperands& operands, const float* bias,
                                  const LstmResults& results);

// Gradients of the results; nullptr stands for zeros.
struct LstmGradients {
  const float *output, *hy, *cy;
};
// Receives the gradients of the operands and of the bias. input and bias may be nullptr: not needed.
struct LstmOperandGradients {
  float *input, *w_ih, *w_hh, *bias, *hx, *cx;
};
COMPOSER_EXPORT void lstm_backward(const LstmSizes& sizes, const LstmOperands& operands, const float* output,
                                   const float* workspace, const LstmGradients& gradients,
                                   const LstmOperandGradients& results);

}  // namespace composer::kernels

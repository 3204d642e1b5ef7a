#pragma once
// Kernels for clipping by norm, for gradients in host memory. Rounding is the same on every processor.
#include <cstdint>

namespace composer::algorithms::detail {

double sum_of_squares(const float* values, std::int64_t n);
double sum_of_squares(const double* values, std::int64_t n);
void multiply(float* values, std::int64_t n, float factor);
void multiply(double* values, std::int64_t n, double factor);

}  // namespace composer::algorithms::detail

// LAMB's formula as loops over memory. Internal; does not use tensors.
#pragma once
#include <cstdint>

namespace composer::optim::detail {

// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;
// r = m / first / (sqrt(v / second) + eps) + decay * p.
struct LambUpdate {
  double beta1, beta2, eps, decay;
  double first, second;  // 1 - beta1^step, 1 - beta2^step
  void* p;
  const void* g;
  void *m, *v;
  bool is_double;  // all four arrays are double; otherwise all are float
};

struct SquareSums {
  double p = 0, r = 0;
};

// Updates m and v of the elements [begin, end), and returns the sums of squares of p and r of these elements.
SquareSums update_lamb_moments(const LambUpdate& update, std::int64_t begin, std::int64_t end);
// p -= rate * r for the elements [begin, end). r is recomputed from m and v, which costs less than storing it.
void move_lamb(const LambUpdate& update, double rate, std::int64_t begin, std::int64_t end);

}  // namespace composer::optim::detail

// The formulas of the optimizers that work element by element, as loops over memory. Internal; knows no tensors.
#pragma once
#include <cstdint>
#include <variant>

namespace composer::optim::detail {

// p is the parameter, g its gradient. First of all, g += l2 * p. Then:

// buffer = momentum * buffer + fresh * g;  d = g + momentum * buffer if nesterov, else buffer, or g where a is null;
// p = keep * p - lr * d.                                                                               a: buffer
struct SgdUpdate {
  double l2, keep, momentum, fresh, lr;
  bool nesterov;
};
// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;  top = max(top, v), or v where c is null;
// p = keep * p - rate * m / (scale * sqrt(top) + eps).                                          a: m, b: v, c: top
struct AdamUpdate {
  double l2, keep, beta1, beta2, eps, rate, scale;
};
// s = alpha * s + (1 - alpha) * g^2;  mean = alpha * mean + (1 - alpha) * g, or 0 where c is null;
// d = g / (sqrt(s - mean^2) + eps);  buffer = momentum * buffer + d, or d where b is null;
// p -= lr * buffer.                                                                     a: s, b: buffer, c: mean
struct RmspropUpdate {
  double l2, alpha, eps, momentum, lr;
};
// s += g^2;  p -= lr * g / (sqrt(s) + eps).                                                                a: s
struct AdagradUpdate {
  double l2, eps, lr;
};
// p = keep * p - lr * sign(beta1 * m + (1 - beta1) * g);  m = beta2 * m + (1 - beta2) * g.                  a: m
struct LionUpdate {
  double l2, keep, beta1, beta2, lr;
};

using Update = std::variant<SgdUpdate, AdamUpdate, RmspropUpdate, AdagradUpdate, LionUpdate>;

// A parameter and its state, n numbers each in the same order: all float or all double.
struct Slice {
  Update update;
  void* p;
  const void* g;
  void *a, *b, *c;  // null where the update has no such state
  std::int64_t n;
  bool is_double;
};

// Elements [begin, end). Every operation is rounded for itself, so a result depends neither on the machine nor on where
// a slice is cut.
void run(const Slice& slice, std::int64_t begin, std::int64_t end);

}  // namespace composer::optim::detail

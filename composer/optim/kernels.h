// The formulas of the optimizers that update elements independently, as loops over memory. Internal; does not use
// tensors.
#pragma once
#include <cstdint>
#include <variant>

namespace composer::optim::detail {

// p is the parameter and g its gradient; the pointers lead to its state. Each formula begins with g += l2 * p.

// buffer = momentum * buffer + fresh * g;  p = keep * p - lr * d, where
// d = g + momentum * buffer if nesterov, else buffer, or g if there is no buffer.
struct SgdUpdate {
  double l2, keep, momentum, fresh, lr;
  bool nesterov;
  void* buffer;  // or null
};
// m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;  top = max(top, v), or v if there is no top;
// p = keep * p - rate * m / (scale * sqrt(top) + eps).
struct AdamUpdate {
  double l2, keep, beta1, beta2, eps, rate, scale;
  void *m, *v;
  void* top;  // or null
};
// s = alpha * s + (1 - alpha) * g^2;  mean = alpha * mean + (1 - alpha) * g, or 0 if there is no mean;
// d = g / (sqrt(max(0, s - mean^2)) + eps);  buffer = momentum * buffer + d, or d if there is no buffer;
// p -= lr * buffer.
struct RmspropUpdate {
  double l2, alpha, eps, momentum, lr;
  void* s;
  void *buffer, *mean;  // or null
};
// s += g^2;  p -= lr * g / (sqrt(s) + eps).
struct AdagradUpdate {
  double l2, eps, lr;
  void* s;
};
// p = keep * p - lr * sign(beta1 * m + (1 - beta1) * g);  m = beta2 * m + (1 - beta2) * g.
struct LionUpdate {
  double l2, keep, beta1, beta2, lr;
  void* m;
};

using Update = std::variant<SgdUpdate, AdamUpdate, RmspropUpdate, AdagradUpdate, LionUpdate>;

// A parameter and its state: n numbers each, in the same order, all float or all double.
struct Slice {
  Update update;
  void* p;
  const void* g;
  std::int64_t n;
  bool is_double;
};

// Updates elements [begin, end). Every operation is rounded separately, so results depend neither on the machine nor on
// how a slice is divided.
void update_elements(const Slice& slice, std::int64_t begin, std::int64_t end);

}  // namespace composer::optim::detail

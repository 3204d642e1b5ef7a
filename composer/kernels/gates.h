#pragma once
// One step of an LSTM after its matrix products: the gates, cells and outputs of some samples, and their gradients.
// Templates over the vector types of processors, as in micro_kernel.h; every vector type gives the same bits.
#include <cstdint>
#include <initializer_list>

namespace composer::kernels {

// A row of gates consists of i, f, g and o, with `hidden` numbers each. A row of any other array has `hidden` numbers.
// Rows are adjacent.
struct CellForward {
  std::int64_t rows, hidden;
  float* gates;         // in: before activation. Out: after activation, if `tanh` is not null
  const float* before;  // cells of the previous step
  float* cells;
  float* tanh;  // receives tanh of the cells; nullptr: not needed
  float* output;
};

struct CellBackward {
  std::int64_t rows, hidden;
  const float *gates, *before, *tanh;  // as CellForward leaves them
  const float* d_output;
  float* d_cells;  // in: gradients of this step's cells. Out: of the previous step's
  float* d_gates;
};

// Computes exp(x) - 1 as scale * (p + 1) - 1. x must be in [-87.3, 88.8]; NaN gives NaN.
template <class Lanes>
struct Exponential {
  using V = typename Lanes::V;
  V scale, p;
  __attribute__((always_inline)) explicit Exponential(V x) {
    const V magic = Lanes::set(12582912.0F);  // its last bit has the value 1, so adding it rounds to a whole number
    const V shifted = Lanes::multiply_add(x, Lanes::set(1.44269504F), magic);
    const V n = Lanes::subtract(shifted, magic);
    V r = Lanes::negative_multiply_add(n, Lanes::set(0.693359375F), x);
    r = Lanes::negative_multiply_add(n, Lanes::set(-2.12194440e-4F), r);
    V sum = Lanes::set(1.9875691500e-4F);
    for (const float c : {1.3981999507e-3F, 8.3334519073e-3F, 4.1665795894e-2F, 1.6666665459e-1F, 5.0000001201e-1F})
      sum = Lanes::multiply_add(sum, r, Lanes::set(c));
    p = Lanes::multiply_add(Lanes::multiply(r, r), sum, r);
    scale = Lanes::power_of_two(shifted);
  }
};

template <class Lanes>
__attribute__((always_inline)) inline typename Lanes::V sigmoid(typename Lanes::V x) {
  using V = typename Lanes::V;
  const V one = Lanes::set(1);
  V minus = Lanes::subtract(Lanes::zero(), x);
  minus = Lanes::at_most(Lanes::set(88.8F), Lanes::at_least(Lanes::set(-87.3F), minus));
  const Exponential<Lanes> e(minus);  // infinite from 88.4 on
  return Lanes::divide(one, Lanes::add(one, Lanes::multiply_add(e.scale, e.p, e.scale)));
}

template <class Lanes>
__attribute__((always_inline)) inline typename Lanes::V tanh(typename Lanes::V x) {
  using V = typename Lanes::V;
  const V size = Lanes::magnitude(x);
  const Exponential<Lanes> e(Lanes::at_most(Lanes::set(40), Lanes::add(size, size)));
  const V less_one = Lanes::multiply_add(e.scale, e.p, Lanes::subtract(e.scale, Lanes::set(1)));
  return Lanes::with_sign(Lanes::divide(less_one, Lanes::add(less_one, Lanes::set(2))), x);
}

template <class Lanes>
void cell_forward(const CellForward& c) {
  using V = typename Lanes::V;
  const std::int64_t n = c.hidden;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    float* gates = c.gates + row * 4 * n;
    for (std::int64_t j = 0; j < n; j += Lanes::kWidth) {
      const auto mask = Lanes::mask(n - j);
      const std::int64_t at = row * n + j;
      const V i = sigmoid<Lanes>(Lanes::load(gates + j, mask)), f = sigmoid<Lanes>(Lanes::load(gates + n + j, mask));
      const V g = tanh<Lanes>(Lanes::load(gates + 2 * n + j, mask));
      const V o = sigmoid<Lanes>(Lanes::load(gates + 3 * n + j, mask));
      const V cell = Lanes::multiply_add(f, Lanes::load(c.before + at, mask), Lanes::multiply(i, g));
      const V tanh_of_cell = tanh<Lanes>(cell);
      Lanes::store(c.cells + at, mask, cell);
      Lanes::store(c.output + at, mask, Lanes::multiply(o, tanh_of_cell));
      if (c.tanh == nullptr) continue;
      Lanes::store(gates + j, mask, i);
      Lanes::store(gates + n + j, mask, f);
      Lanes::store(gates + 2 * n + j, mask, g);
      Lanes::store(gates + 3 * n + j, mask, o);
      Lanes::store(c.tanh + at, mask, tanh_of_cell);
    }
  }
}

template <class Lanes>
void cell_backward(const CellBackward& c) {
  using V = typename Lanes::V;
  const std::int64_t n = c.hidden;
  const V one = Lanes::set(1);
  // Returns d * x * (1 - x), the gradient through a sigmoid with the output x.
  const auto through_sigmoid = [one](V d, V x) {
    return Lanes::multiply(d, Lanes::multiply(x, Lanes::subtract(one, x)));
  };
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const float* gates = c.gates + row * 4 * n;
    float* d_gates = c.d_gates + row * 4 * n;
    for (std::int64_t j = 0; j < n; j += Lanes::kWidth) {
      const auto mask = Lanes::mask(n - j);
      const std::int64_t at = row * n + j;
      const V i = Lanes::load(gates + j, mask), f = Lanes::load(gates + n + j, mask),
              g = Lanes::load(gates + 2 * n + j, mask), o = Lanes::load(gates + 3 * n + j, mask);
      const V t = Lanes::load(c.tanh + at, mask), d_output = Lanes::load(c.d_output + at, mask);
      const V d_cell = Lanes::multiply_add(Lanes::multiply(d_output, o), Lanes::negative_multiply_add(t, t, one),
                                           Lanes::load(c.d_cells + at, mask));
      Lanes::store(d_gates + j, mask, through_sigmoid(Lanes::multiply(d_cell, g), i));
      Lanes::store(d_gates + n + j, mask,
                   through_sigmoid(Lanes::multiply(d_cell, Lanes::load(c.before + at, mask)), f));
      Lanes::store(d_gates + 2 * n + j, mask,
                   Lanes::multiply(Lanes::multiply(d_cell, i), Lanes::negative_multiply_add(g, g, one)));
      Lanes::store(d_gates + 3 * n + j, mask, through_sigmoid(Lanes::multiply(d_output, t), o));
      Lanes::store(c.d_cells + at, mask, Lanes::multiply(d_cell, f));
    }
  }
}

}  // namespace composer::kernels

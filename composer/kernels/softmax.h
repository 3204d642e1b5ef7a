#pragma once
// Softmax of rows of attention scores, and its gradients. Templates over the vector types of processors, as in
// micro_kernel.h. Sums are computed in 16 parts, so every vector type gives the same bits.
#include <cstdint>

#include "composer/kernels/gates.h"

namespace composer::kernels {

// Rows of scores with a distance of `stride`, a multiple of 16. Only the first min(keys, visible + i) scores of row i
// are used; probabilities and gradients from there to `keys` become 0.
struct Scores {
  float* scores;
  std::int64_t rows, keys, stride, visible;
  std::int64_t of_row(std::int64_t row) const { return visible + row < keys ? visible + row : keys; }
};

// Computes exp(x - max) / sum in place. A row that consists of -inf alone, because it sees no key, becomes 0, with a
// max of 0 and a sum of 1, as in libtorch's kernel.
struct Softmax {
  Scores at;
  float *max, *sum;  // for each row: the maximum of the scores, and the sum of exp(x - max)
};

// Works in place: the scores become probabilities, and the gradients of the probabilities become gradients of the
// scores. Both are 0 in a row that consists of -inf alone.
struct SoftmaxBackward {
  Scores at;
  float* gradients;        // with the layout of the scores
  const float* logsumexp;  // one for each row
  const float *output, *d_output;
  std::int64_t output_row, d_output_row, depth;  // distances of rows, and the number of columns, which are adjacent
};

constexpr std::int64_t kParts = 16;

template <class Lanes>
struct Parts {
  using V = typename Lanes::V;
  static constexpr std::int64_t kVectors = kParts / Lanes::kWidth;
  V part[kVectors];

  __attribute__((always_inline)) explicit Parts(V value) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) part[v] = value;
  }
  __attribute__((always_inline)) void store(float* to) const {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) Lanes::store(to + v * Lanes::kWidth, part[v]);
  }
  float sum() const {
    float parts[kParts];
    store(parts);
    float all = 0;
    for (const float one : parts) all += one;
    return all;
  }
};

// A template, so that each instruction set has its own copy.
template <class Lanes>
bool sees_nothing(const float* scores, std::int64_t used) {
  std::int64_t j = 0;
  while (j < used && scores[j] == -__builtin_inff()) ++j;
  return j == used;
}

// exp(x) for x <= 0, or slightly above 0 by rounding. Below -87.3 the result is less than 1e-37; NaN gives NaN.
template <class Lanes>
__attribute__((always_inline)) inline typename Lanes::V exp_of(typename Lanes::V x) {
  const Exponential<Lanes> e(Lanes::at_most(Lanes::set(88.8F), Lanes::at_least(Lanes::set(-87.3F), x)));
  return Lanes::multiply_add(e.scale, e.p, e.scale);
}

template <class Lanes>
void softmax(const Softmax& s) {
  using P = Parts<Lanes>;
  constexpr std::int64_t kWidth = Lanes::kWidth;
  for (std::int64_t row = 0; row < s.at.rows; ++row) {
    float* x = s.at.scores + row * s.at.stride;
    const std::int64_t used = s.at.of_row(row), end = (used + kParts - 1) / kParts * kParts;
    for (std::int64_t j = used; j < end; ++j) x[j] = -__builtin_inff();
    P top(Lanes::set(-__builtin_inff()));
    for (std::int64_t j = 0; j < end; j += kParts)
#pragma GCC unroll 2
      for (int v = 0; v < P::kVectors; ++v) top.part[v] = Lanes::at_least(top.part[v], Lanes::load(x + j + v * kWidth));
    float parts[kParts];
    top.store(parts);
    float max = parts[0];
    for (const float one : parts) max = max > one ? max : one;
    if (max == -__builtin_inff() && sees_nothing<Lanes>(x, used)) {
      for (std::int64_t j = 0; j < s.at.keys; ++j) x[j] = 0;
      s.max[row] = 0;
      s.sum[row] = 1;
      continue;
    }
    const auto shift = Lanes::set(max);
    P sums(Lanes::zero());
    for (std::int64_t j = 0; j < end; j += kParts)
#pragma GCC unroll 2
      for (int v = 0; v < P::kVectors; ++v) {
        float* at = x + j + v * kWidth;
        const auto e = exp_of<Lanes>(Lanes::subtract(Lanes::load(at), shift));
        Lanes::store(at, e);
        sums.part[v] = Lanes::add(sums.part[v], e);
      }
    const float sum = sums.sum();
    const auto share = Lanes::set(1 / sum);
    for (std::int64_t j = 0; j < end; j += kWidth) Lanes::store(x + j, Lanes::multiply(Lanes::load(x + j), share));
    for (std::int64_t j = used; j < s.at.keys; ++j) x[j] = 0;
    s.max[row] = max;
    s.sum[row] = sum;
  }
}

template <class Lanes>
void softmax_backward(const SoftmaxBackward& s) {
  using P = Parts<Lanes>;
  constexpr std::int64_t kWidth = Lanes::kWidth;
  for (std::int64_t row = 0; row < s.at.rows; ++row) {
    const float *o = s.output + row * s.output_row, *d_o = s.d_output + row * s.d_output_row;
    P dot(Lanes::zero());
    for (std::int64_t j = 0; j < s.depth; j += kParts)
#pragma GCC unroll 2
      for (int v = 0; v < P::kVectors; ++v) {
        const std::int64_t at = j + v * kWidth;
        const auto mask = Lanes::mask(s.depth - at);
        dot.part[v] = Lanes::multiply_add(Lanes::load(o + at, mask), Lanes::load(d_o + at, mask), dot.part[v]);
      }
    float* x = s.at.scores + row * s.at.stride;
    float* gradients = s.gradients + row * s.at.stride;
    const std::int64_t used = s.at.of_row(row);
    if (s.logsumexp[row] == 0 && sees_nothing<Lanes>(x, used)) {
      for (std::int64_t j = 0; j < s.at.keys; ++j) x[j] = gradients[j] = 0;
      continue;
    }
    const auto shift = Lanes::set(s.logsumexp[row]), mean = Lanes::set(dot.sum());
    for (std::int64_t j = 0; j < used; j += kWidth) {
      const auto p = exp_of<Lanes>(Lanes::subtract(Lanes::load(x + j), shift));
      Lanes::store(x + j, p);
      Lanes::store(gradients + j, Lanes::multiply(p, Lanes::subtract(Lanes::load(gradients + j), mean)));
    }
    for (std::int64_t j = used; j < s.at.keys; ++j) x[j] = gradients[j] = 0;
  }
}

}  // namespace composer::kernels

// Compiled with -ffp-contract=off (CMakeLists.txt), and with a fixed order of sums, so that results do not depend on
// the machine.
#include "composer/optim/lamb_kernel.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "composer/util/avx512.h"

#define COMPOSER_INLINE __attribute__((always_inline)) inline

namespace composer::optim::detail {
namespace {

constexpr std::size_t kLanes = 16;  // number of independent sums, over elements at this distance

template <class T>
struct Loop {
  T beta1, rest1, beta2, rest2, eps, decay, first, second;
  T* __restrict p;
  const T* __restrict g;
  T* __restrict m;
  T* __restrict v;

  COMPOSER_INLINE explicit Loop(const LambUpdate& u)
      : beta1(T(u.beta1)),
        rest1(T(1 - u.beta1)),
        beta2(T(u.beta2)),
        rest2(T(1 - u.beta2)),
        eps(T(u.eps)),
        decay(T(u.decay)),
        first(T(1 / u.first)),
        second(T(1 / u.second)),
        p(static_cast<T*>(u.p)),
        g(static_cast<const T*>(u.g)),
        m(static_cast<T*>(u.m)),
        v(static_cast<T*>(u.v)) {}

  COMPOSER_INLINE T direction(std::int64_t i) const {
    return m[i] * first / (std::sqrt(v[i] * second) + eps) + decay * p[i];
  }
  COMPOSER_INLINE void add(std::int64_t i, T& of_p, T& of_r) const {
    m[i] = beta1 * m[i] + rest1 * g[i];
    v[i] = beta2 * v[i] + rest2 * (g[i] * g[i]);
    const T r = direction(i);
    of_p += p[i] * p[i];
    of_r += r * r;
  }
  COMPOSER_INLINE SquareSums moments(std::int64_t begin, std::int64_t end) const {
    std::array<T, kLanes> of_p{}, of_r{};
    std::int64_t i = begin;
    for (; i + static_cast<std::int64_t>(kLanes) <= end; i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane)
        add(i + static_cast<std::int64_t>(lane), of_p[lane], of_r[lane]);
    for (std::size_t lane = 0; i < end; ++i, ++lane) add(i, of_p[lane], of_r[lane]);
    SquareSums sums;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      sums.p += static_cast<double>(of_p[lane]);
      sums.r += static_cast<double>(of_r[lane]);
    }
    return sums;
  }
  COMPOSER_INLINE void move(T rate, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t i = begin; i < end; ++i) p[i] = p[i] - rate * direction(i);
  }
};

// Inlined into the functions below, each of which is compiled for another instruction set.
COMPOSER_INLINE SquareSums moments(const LambUpdate& u, std::int64_t begin, std::int64_t end) {
  return u.is_double ? Loop<double>(u).moments(begin, end) : Loop<float>(u).moments(begin, end);
}
COMPOSER_INLINE void move(const LambUpdate& u, double rate, std::int64_t begin, std::int64_t end) {
  if (u.is_double) return Loop<double>(u).move(rate, begin, end);
  Loop<float>(u).move(static_cast<float>(rate), begin, end);
}

struct Functions {
  SquareSums (*moments)(const LambUpdate&, std::int64_t, std::int64_t);
  void (*move)(const LambUpdate&, double, std::int64_t, std::int64_t);
};

SquareSums moments_portable(const LambUpdate& u, std::int64_t begin, std::int64_t end) {
  return moments(u, begin, end);
}
void move_portable(const LambUpdate& u, double rate, std::int64_t begin, std::int64_t end) {
  move(u, rate, begin, end);
}

#if defined(__x86_64__)
#define COMPOSER_FOR_AVX2 __attribute__((target("avx2")))
#define COMPOSER_FOR_AVX512 __attribute__((COMPOSER_AVX512("avx512f,avx512dq,avx512vl")))
COMPOSER_FOR_AVX2 SquareSums moments_avx2(const LambUpdate& u, std::int64_t begin, std::int64_t end) {
  return moments(u, begin, end);
}
COMPOSER_FOR_AVX2 void move_avx2(const LambUpdate& u, double rate, std::int64_t begin, std::int64_t end) {
  move(u, rate, begin, end);
}
COMPOSER_FOR_AVX512 SquareSums moments_avx512(const LambUpdate& u, std::int64_t begin, std::int64_t end) {
  return moments(u, begin, end);
}
COMPOSER_FOR_AVX512 void move_avx512(const LambUpdate& u, double rate, std::int64_t begin, std::int64_t end) {
  move(u, rate, begin, end);
}
#endif

const Functions& fastest() {
  static const Functions chosen = [] {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      return Functions{moments_avx512, move_avx512};
    if (__builtin_cpu_supports("avx2")) return Functions{moments_avx2, move_avx2};
#endif
    return Functions{moments_portable, move_portable};
  }();
  return chosen;
}

}  // namespace

SquareSums update_lamb_moments(const LambUpdate& update, std::int64_t begin, std::int64_t end) {
  return fastest().moments(update, begin, end);
}

void move_lamb(const LambUpdate& update, double rate, std::int64_t begin, std::int64_t end) {
  fastest().move(update, rate, begin, end);
}

}  // namespace composer::optim::detail

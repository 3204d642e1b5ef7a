// Compiled with -ffp-contract=off (CMakeLists.txt): a fused multiply-add rounds only once, and older processors have
// none.
#include "composer/optim/kernels.h"

#include <cmath>

#include "composer/util/avx512.h"

#define COMPOSER_INLINE __attribute__((always_inline)) inline

namespace composer::optim::detail {
namespace {

// The larger number. Returns b if either is NaN.
template <class T>
COMPOSER_INLINE T larger(T a, T b) {
  return b <= a ? a : b;
}

template <class T, bool HAS_BUFFER, bool NESTEROV>
struct Sgd {
  // Whether the formula has the first, second and third state; likewise in the structs below.
  static constexpr bool kHas[] = {HAS_BUFFER, false, false};
  T l2, keep, momentum, fresh, lr;
  COMPOSER_INLINE explicit Sgd(const SgdUpdate& u)
      : l2(T(u.l2)), keep(T(u.keep)), momentum(T(u.momentum)), fresh(T(u.fresh)), lr(T(u.lr)) {}
  COMPOSER_INLINE void operator()(T& p, T g, T& buffer, T&, T&) const {
    T d = g + l2 * p;
    if constexpr (HAS_BUFFER) {
      buffer = momentum * buffer + fresh * d;
      d = NESTEROV ? d + momentum * buffer : buffer;
    }
    p = keep * p - lr * d;
  }
};

template <class T, bool AMSGRAD>
struct Adam {
  static constexpr bool kHas[] = {true, true, AMSGRAD};
  T l2, keep, beta1, rest1, beta2, rest2, eps, rate, scale;
  COMPOSER_INLINE explicit Adam(const AdamUpdate& u)
      : l2(T(u.l2)),
        keep(T(u.keep)),
        beta1(T(u.beta1)),
        rest1(T(1 - u.beta1)),
        beta2(T(u.beta2)),
        rest2(T(1 - u.beta2)),
        eps(T(u.eps)),
        rate(T(u.rate)),
        scale(T(u.scale)) {}
  COMPOSER_INLINE void operator()(T& p, T g, T& m, T& v, T& top) const {
    const T d = g + l2 * p;
    m = beta1 * m + rest1 * d;
    v = beta2 * v + rest2 * (d * d);
    T second = v;
    if constexpr (AMSGRAD) second = top = larger(top, v);
    p = keep * p - rate * m / (scale * std::sqrt(second) + eps);
  }
};

template <class T, bool HAS_BUFFER, bool CENTERED>
struct Rmsprop {
  static constexpr bool kHas[] = {true, HAS_BUFFER, CENTERED};
  T l2, alpha, rest, eps, momentum, lr;
  COMPOSER_INLINE explicit Rmsprop(const RmspropUpdate& u)
      : l2(T(u.l2)), alpha(T(u.alpha)), rest(T(1 - u.alpha)), eps(T(u.eps)), momentum(T(u.momentum)), lr(T(u.lr)) {}
  COMPOSER_INLINE void operator()(T& p, T g, T& s, T& buffer, T& mean) const {
    const T d = g + l2 * p;
    s = alpha * s + rest * (d * d);
    T variance = s;
    if constexpr (CENTERED) {
      mean = alpha * mean + rest * d;
      variance = larger(T(0), s - mean * mean);  // rounding may make it negative
    }
    T step = d / (std::sqrt(variance) + eps);
    if constexpr (HAS_BUFFER) step = buffer = momentum * buffer + step;
    p = p - lr * step;
  }
};

template <class T>
struct Adagrad {
  static constexpr bool kHas[] = {true, false, false};
  T l2, eps, lr;
  COMPOSER_INLINE explicit Adagrad(const AdagradUpdate& u) : l2(T(u.l2)), eps(T(u.eps)), lr(T(u.lr)) {}
  COMPOSER_INLINE void operator()(T& p, T g, T& s, T&, T&) const {
    const T d = g + l2 * p;
    s = s + d * d;
    p = p - lr * d / (std::sqrt(s) + eps);
  }
};

template <class T>
struct Lion {
  static constexpr bool kHas[] = {true, false, false};
  T l2, keep, beta1, rest1, beta2, rest2, lr;
  COMPOSER_INLINE explicit Lion(const LionUpdate& u)
      : l2(T(u.l2)),
        keep(T(u.keep)),
        beta1(T(u.beta1)),
        rest1(T(1 - u.beta1)),
        beta2(T(u.beta2)),
        rest2(T(1 - u.beta2)),
        lr(T(u.lr)) {}
  COMPOSER_INLINE void operator()(T& p, T g, T& m, T&, T&) const {
    const T d = g + l2 * p;
    const T c = beta1 * m + rest1 * d;
    p = keep * p - (c > 0 ? lr : c < 0 ? -lr : c);  // NaN stays NaN
    m = beta2 * m + rest2 * d;
  }
};

// The states of a slice; null for those that the formula does not have.
struct States {
  void *first = nullptr, *second = nullptr, *third = nullptr;
};

// The pointers are parameters, because clang ignores __restrict on other variables.
template <class T, class Formula>
COMPOSER_INLINE void loop_over(const Formula& formula, std::int64_t begin, std::int64_t end, T* __restrict p,
                               const T* __restrict g, T* __restrict first, T* __restrict second, T* __restrict third) {
  T unused = 0;
  for (std::int64_t i = begin; i < end; ++i)
    formula(p[i], g[i], Formula::kHas[0] ? first[i] : unused, Formula::kHas[1] ? second[i] : unused,
            Formula::kHas[2] ? third[i] : unused);
}

template <class T, class Formula>
COMPOSER_INLINE void loop(const Formula& formula, const Slice& slice, const States& states, std::int64_t begin,
                          std::int64_t end) {
  loop_over(formula, begin, end, static_cast<T*>(slice.p), static_cast<const T*>(slice.g),
            static_cast<T*>(states.first), static_cast<T*>(states.second), static_cast<T*>(states.third));
}

// Each combination of states has a loop of its own.
template <class T>
COMPOSER_INLINE void update_numbers(const Slice& slice, std::int64_t begin, std::int64_t end) {
  if (const auto* adam = std::get_if<AdamUpdate>(&slice.update)) {
    if (adam->top) return loop<T>(Adam<T, true>(*adam), slice, {adam->m, adam->v, adam->top}, begin, end);
    return loop<T>(Adam<T, false>(*adam), slice, {adam->m, adam->v}, begin, end);
  }
  if (const auto* sgd = std::get_if<SgdUpdate>(&slice.update)) {
    if (!sgd->buffer) return loop<T>(Sgd<T, false, false>(*sgd), slice, {}, begin, end);
    if (sgd->nesterov) return loop<T>(Sgd<T, true, true>(*sgd), slice, {sgd->buffer}, begin, end);
    return loop<T>(Sgd<T, true, false>(*sgd), slice, {sgd->buffer}, begin, end);
  }
  if (const auto* rms = std::get_if<RmspropUpdate>(&slice.update)) {
    const States states{rms->s, rms->buffer, rms->mean};
    if (rms->buffer && rms->mean) return loop<T>(Rmsprop<T, true, true>(*rms), slice, states, begin, end);
    if (rms->buffer) return loop<T>(Rmsprop<T, true, false>(*rms), slice, states, begin, end);
    if (rms->mean) return loop<T>(Rmsprop<T, false, true>(*rms), slice, states, begin, end);
    return loop<T>(Rmsprop<T, false, false>(*rms), slice, states, begin, end);
  }
  if (const auto* adagrad = std::get_if<AdagradUpdate>(&slice.update))
    return loop<T>(Adagrad<T>(*adagrad), slice, {adagrad->s}, begin, end);
  const auto& lion = std::get<LionUpdate>(slice.update);
  loop<T>(Lion<T>(lion), slice, {lion.m}, begin, end);
}

// Inlined into the functions below, each of which is compiled for another instruction set.
COMPOSER_INLINE void update_inline(const Slice& slice, std::int64_t begin, std::int64_t end) {
  if (slice.is_double) return update_numbers<double>(slice, begin, end);
  update_numbers<float>(slice, begin, end);
}

void update_portable(const Slice& slice, std::int64_t begin, std::int64_t end) { update_inline(slice, begin, end); }

#if defined(__x86_64__)
__attribute__((target("avx2"))) void update_avx2(const Slice& slice, std::int64_t begin, std::int64_t end) {
  update_inline(slice, begin, end);
}

__attribute__((COMPOSER_AVX512("avx512f,avx512dq,avx512vl"))) void update_avx512(const Slice& slice, std::int64_t begin,
                                                                                 std::int64_t end) {
  update_inline(slice, begin, end);
}
#endif

using UpdateElements = void (*)(const Slice&, std::int64_t, std::int64_t);
UpdateElements fastest() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return update_avx512;
  if (__builtin_cpu_supports("avx2")) return update_avx2;
#endif
  return update_portable;
}

}  // namespace

void update_elements(const Slice& slice, std::int64_t begin, std::int64_t end) {
  static const UpdateElements fast = fastest();
  fast(slice, begin, end);
}

}  // namespace composer::optim::detail

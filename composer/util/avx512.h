#pragma once

// __attribute__((COMPOSER_AVX512("avx512f,avx512vl"))) compiles a function for these instruction sets with vectors of
// 512 bits. g++ would use vectors of 256 bits without being told; clang has no such attribute and uses the widest.
#if defined(__clang__)
#define COMPOSER_AVX512(features) target(features)
#else
#define COMPOSER_AVX512(features) target(features ",prefer-vector-width=512")
#endif

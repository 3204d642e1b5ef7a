#pragma once

// __attribute__((COMPOSER_AVX512("avx512f,avx512vl"))): a function that is compiled for them, with vectors of 512 bits.
// g++ would take those of 256 bits; clang has no such word in an attribute, and takes the widest.
#if defined(__clang__)
#define COMPOSER_AVX512(features) target(features)
#else
#define COMPOSER_AVX512(features) target(features ",prefer-vector-width=512")
#endif

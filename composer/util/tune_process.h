#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer {

// Settings of the process of a training program. They do not change results, except that denormal numbers become 0, and
// `products` changes the last bits.
struct ProcessOptions {
  // Keeps the memory of freed CPU tensors for later ones. Not installed under AddressSanitizer.
  bool caching_allocator = true;
  // Requests pages of 2 MiB for tensors of more than 64 KiB, where the system allows it
  // (/sys/kernel/mm/transparent_hugepage/enabled: always or madvise).
  bool huge_pages = true;
  // Bytes of free memory that are kept at most, to within a megabyte. Unset: as much as repeated steps need again.
  std::optional<std::size_t> cache_limit = {};
  // Flushes denormal numbers to 0. Numbers below 1e-38 (float) make some kernels a hundred times slower.
  bool flush_denormals = true;
  int threads = 0;  // number of threads of libtorch's operators; 0: unchanged
  // Lets trainers without TrainerOptions::tune, too, choose between libtorch's matrix products and ours
  // (docs/internals/products.md). Changes the last bits of results.
  bool products = false;
};

// Call this in the first line of main(): threads that libtorch has started before do not flush denormals. Returns one
// line for each setting that was applied. A second call changes the options and releases memory beyond a lower limit;
// the allocator stays installed. Throws ConfigError for threads < 0.
COMPOSER_EXPORT std::vector<std::string> tune_process(ProcessOptions options = {});

// Whether tune_process() was called with `products`.
COMPOSER_EXPORT bool process_races_products();

// Statistics of the caching allocator; all zero if it is not installed.
struct CpuMemory {
  std::size_t used = 0;    // bytes in tensors, rounded up to the sizes of blocks
  std::size_t cached = 0;  // bytes kept for later tensors
};
COMPOSER_EXPORT CpuMemory cpu_memory();

// Returns the memory that the caching allocator and the C library keep to the system.
COMPOSER_EXPORT void empty_cpu_cache();

}  // namespace composer

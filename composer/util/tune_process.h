#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer {

// What a training program asks of its process. None of it changes a result, but for denormal numbers, which become 0,
// and products.
struct ProcessOptions {
  // Keeps the memory of freed CPU tensors for later ones. The C library returns large blocks to the system, and the
  // next step waits while they are mapped and cleared again. Not installed under AddressSanitizer, which checks each
  // block.
  bool caching_allocator = true;
  // Requests pages of 2 MiB for tensors of more than 64 KiB, where the system allows it
  // (/sys/kernel/mm/transparent_hugepage/enabled: always or madvise).
  bool huge_pages = true;
  // Bytes of free memory that are kept at most, to within a megabyte. Unset: as much as repeated steps need again, so
  // that used and kept memory together exceed the most that tensors have lately used at once by at most an eighth (by a
  // quarter where tensors live for random times), or by 96 MiB if that is more.
  std::optional<std::size_t> cache_limit = {};
  // Numbers below 1e-38 (float) make some kernels a hundred times slower.
  bool flush_denormals = true;
  int threads = 0;  // of libtorch's operators; 0: unchanged
  // Trainers race libtorch's products of float matrices against our own kernels at the start of their first fit and use
  // the faster ones, as those with TrainerOptions::tune do (docs/products.md has the exceptions). It changes the last
  // bits of results.
  bool products = false;
};

// For the first line of main(): threads that libtorch starts before do not flush denormals. Returns one line for each
// thing done. A second call changes the options and releases what is beyond a lower limit; the allocator stays. Throws
// ConfigError for threads < 0.
COMPOSER_EXPORT std::vector<std::string> tune_process(ProcessOptions options = {});

// Whether tune_process() has been asked for `products`.
COMPOSER_EXPORT bool process_races_products();

// Statistics of the caching allocator; all zero if it is not installed.
struct CpuMemory {
  std::size_t used = 0;    // bytes in tensors, rounded up to the sizes of blocks
  std::size_t cached = 0;  // bytes kept for later tensors
};
COMPOSER_EXPORT CpuMemory cpu_memory();

// Returns everything that the caching allocator and the C library keep to the system.
COMPOSER_EXPORT void empty_cpu_cache();

}  // namespace composer

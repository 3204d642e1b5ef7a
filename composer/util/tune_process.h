#pragma once
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer {

// What a training program asks of its process. None of it changes a result, but for denormal numbers, which become 0.
struct ProcessOptions {
  // Memory of CPU tensors is kept when it is freed, and given to the next tensor of about its size: the C library hands
  // large blocks back to the system, and the next step waits while they are cleared and mapped again. Not under
  // AddressSanitizer, which looks at each block.
  bool caching_allocator = true;
  // Of blocks of 2 MiB and more, where the system allows it (/sys/kernel/mm/transparent_hugepage: always or madvise).
  bool huge_pages = true;
  // Bytes that are kept at most; what is freed beyond them goes back to the system.
  std::size_t cache_limit = std::numeric_limits<std::size_t>::max();
  // Numbers below 1e-38 (float) make some kernels a hundred times slower.
  bool flush_denormals = true;
  int threads = 0;  // of libtorch's operators; 0: as they are
};

// For the first line of main(): threads that libtorch starts before do not flush denormals. Says what it has done, one
// line each. A second call changes the options; the allocator stays. Throws ConfigError for threads < 0.
COMPOSER_EXPORT std::vector<std::string> tune_process(ProcessOptions options = {});

// Of the caching allocator; all 0 without it.
struct CpuMemory {
  std::size_t used = 0;    // bytes in tensors, rounded up to the sizes of blocks
  std::size_t cached = 0;  // bytes that wait for the next tensor
};
COMPOSER_EXPORT CpuMemory cpu_memory();

// Gives everything that waits in the caching allocator back to the system.
COMPOSER_EXPORT void empty_cpu_cache();

}  // namespace composer

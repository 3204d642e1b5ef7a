#include "composer/util/tune_process.h"

#include <atomic>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include "composer/core/error.h"
#include "composer/core/option.h"
#include "composer/util/caching_allocator.h"

namespace composer {
namespace {

// Higher than the priority of libtorch's default allocator.
constexpr std::uint8_t kPriority = 10;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::atomic<bool> races_products = false;

bool installed() { return c10::GetCPUAllocator() == &util::CachingAllocator::instance(); }

std::vector<Option<ProcessOptions>> process_options() {
  using O = ProcessOptions;
  return all_options(option("caching_allocator", &O::caching_allocator), option("huge_pages", &O::huge_pages),
                     part("cache_limit", &O::cache_limit, "bytes, or unset"),
                     option("flush_denormals", &O::flush_denormals),
                     part("threads", &O::threads, "a whole number").at_least(0).shown([](int threads) {
                       return std::int64_t{threads};
                     }),
                     option("products", &O::products));
}

}  // namespace

std::vector<std::string> tune_process(ProcessOptions options) {
  check(options, process_options(), "tune_process: ", "");
  std::vector<std::string> done;
  // This comes first, because threads inherit the setting when they start.
  const bool flushes = at::Context::setFlushDenormal(options.flush_denormals);
  if (options.flush_denormals)
    done.emplace_back(flushes ? "denormal numbers: flushed to 0"
                              : "denormal numbers: this processor cannot flush them");
  if (options.threads > 0) at::set_num_threads(options.threads);
  done.push_back(join("threads: ", at::get_num_threads()));

  races_products = options.products;
  if (options.products) done.emplace_back("products: the faster of libtorch's and our own, as each trainer finds");

  util::CachingAllocator& allocator = util::CachingAllocator::instance();
  allocator.set_huge_pages(options.huge_pages);
  allocator.set_limit(options.cache_limit);
  if (options.caching_allocator && !kSanitized) c10::SetCPUAllocator(&allocator, kPriority);
  done.push_back(join("memory of tensors: ", !installed()         ? "as the C library gives it"
                                             : options.huge_pages ? "kept for later ones, in huge pages"
                                                                  : "kept for later ones"));
  return done;
}

bool process_races_products() { return races_products; }

CpuMemory cpu_memory() { return util::CachingAllocator::instance().memory(); }

void empty_cpu_cache() { util::CachingAllocator::instance().release_all(); }

}  // namespace composer

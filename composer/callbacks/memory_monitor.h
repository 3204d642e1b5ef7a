#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"

namespace composer::callbacks {

struct MemoryMonitorOptions {
  std::int64_t batch_log_interval = 1;  // in batches; >= 1
  // Statistics of a GPU to log, as memory/<name>: from torch's names, such as "allocated_bytes.all.peak", to names of
  // your choice, in which "bytes" becomes "gigabytes". Empty: those that Composer logs. Not used on the CPU.
  std::map<std::string, std::string> memory_keys = {};
};

// Logs after every batch_log_interval-th batch how much memory is in use, in gigabytes (1e9 bytes) with five
// significant digits. On a device these are statistics of libtorch's caching allocator, which the host keeps, so the
// device is not waited for. On the CPU they are those of the process, and of the caching allocator if tune_process()
// has installed it.
class COMPOSER_EXPORT MemoryMonitor final : public Callback {
 public:
  explicit MemoryMonitor(MemoryMonitorOptions options = {});
  explicit MemoryMonitor(EmptyOptions) : MemoryMonitor() {}
  ~MemoryMonitor() override;
  MemoryMonitor(MemoryMonitor&&) noexcept;
  StateDict local_hparams() const override;

  void init(const State& state, Logger& logger) override;  // warns of a device whose allocator has no statistics
  void after_train_batch(const State& state, Logger& logger) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::callbacks

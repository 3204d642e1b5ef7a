#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/error_watcher.h"
#include "composer/core/export.h"

namespace composer {
class AllocatorHistory;
}

namespace composer::callbacks {

struct OOMObserverOptions {
  std::int64_t max_entries = 100000;               // entries that the CUDA allocator keeps, the newest; >= 1
  std::string folder = "{run_name}/torch_traces";  // folder of the report; placeholders as in the names of checkpoints
  std::string filename = "rank{rank}_oom";         // beginning of the files' names; the same placeholders
  // Beginning of their names at the loggers, with the same placeholders; empty: no upload.
  std::string remote_file_name = "{run_name}/oom_traces/rank{rank}_oom";
  bool overwrite = false;  // false: an existing report is kept, and the new one is numbered: rank0_oom_2_report.txt
};

// Writes a report when an out-of-memory error leaves a fit, an evaluation or a prediction, and sends it to the loggers.
// On CUDA it records the allocator's history from INIT on, and also writes a snapshot of it. Failures are warnings.
class COMPOSER_EXPORT OOMObserver final : public Callback, public ErrorWatcher {
 public:
  explicit OOMObserver(OOMObserverOptions options = {});
  explicit OOMObserver(EmptyOptions) : OOMObserver() {}
  OOMObserver(OOMObserverOptions options, std::unique_ptr<AllocatorHistory> source);  // for tests
  ~OOMObserver() override;
  OOMObserver(OOMObserver&&) noexcept;
  StateDict local_hparams() const override;

  void init(const State& state, Logger& logger) override;
  void run_fails(const std::exception_ptr& error, const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::callbacks

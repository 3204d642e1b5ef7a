#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer {
class AllocatorHistory;
}

namespace composer::callbacks {

struct MemorySnapshotOptions {
  std::int64_t skip_batches = 1;                   // number of batches before the recording; >= 0
  Time interval = "3ba";                           // length of the recording, in any unit but dur; > 0
  std::int64_t max_entries = 100000;               // number of entries that the allocator keeps, the newest; >= 1
  std::string folder = "{run_name}/torch_traces";  // folder of the file; placeholders as in the names of checkpoints
  // Name of the file, to which ".pickle" is appended; the same placeholders.
  std::string filename = "rank{rank}.{batch}.memory_snapshot";
  std::string remote_file_name = "{run_name}/torch_memory_traces";  // its folder at the loggers; empty: no upload
  bool overwrite = false;  // false: snapshots of another run in the folder are an error
};

// Records the history of the CUDA caching allocator once in a trainer's life, writes it as a pickle and sends the file
// to the loggers. On other devices it warns that nothing is recorded. Failures are warnings.
class COMPOSER_EXPORT MemorySnapshot final : public Callback {
 public:
  explicit MemorySnapshot(MemorySnapshotOptions options = {});
  explicit MemorySnapshot(EmptyOptions) : MemorySnapshot() {}
  MemorySnapshot(MemorySnapshotOptions options, std::unique_ptr<AllocatorHistory> source);  // for tests
  ~MemorySnapshot() override;
  MemorySnapshot(MemorySnapshot&&) noexcept;
  StateDict local_hparams() const override;

  void init(const State& state, Logger& logger) override;
  void batch_start(const State& state, Logger& logger) override;
  void batch_end(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::callbacks

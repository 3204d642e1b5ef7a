#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "composer/core/call_watcher.h"
#include "composer/core/callback.h"
#include "composer/core/empty_options.h"
#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::callbacks {

struct ProfilerOptions {
  // Which batches of each epoch are recorded: after skip_first batches follow cycles of `wait` batches, `warmup`
  // batches that prepare the recording, and `active` batches that are recorded. The last active batch of a cycle ends a
  // trace, and so does the last batch of an epoch.

  std::int64_t skip_first = 0;   // >= 0; batches of each epoch before the first cycle
  std::int64_t wait = 0;         // >= 0; batches of a cycle that are skipped first
  std::int64_t warmup = 1;       // >= 0; batches of a cycle that then prepare the recording
  std::int64_t active = 4;       // >= 1; batches of a cycle that are recorded
  std::int64_t repeat = 1;       // number of cycles in an epoch; 0: until its end
  bool operators = true;         // records libtorch's operators by its own profiler (kineto); on a GPU also kernels
  bool record_shapes = false;    // records the shapes of the operators' operands
  bool sys_prof_cpu = true;      // samples the load of the processors for the trace, in a background thread
  bool sys_prof_memory = false;  // also samples the memory
  bool sys_prof_disk = false;    // also samples the disk
  bool sys_prof_net = false;     // also samples the network
  Seconds sys_prof_stats_thread_interval{0.5};  // 0.001 to 86,400 s between two samples; at least two are taken
  std::string folder = "{run_name}/traces";     // folder of the traces; placeholders as in the names of checkpoints
  // Names of the traces, with the same placeholders: the counts are those at the end of the trace.
  std::string filename = "ep{epoch}-ba{batch}-rank{rank}.json";
  bool overwrite = false;                // false: traces of another run in the folder are an error
  std::int64_t num_traces_to_keep = -1;  // number of the newest traces to keep; -1: all
  bool print = true;                     // prints the report of the last trace to stderr when the trainer is closed
};

// Records where time is spent: each event from its beginning to its end, each call of a callback, algorithm or logger,
// and libtorch's operators. Writes a trace in Chrome's format for each cycle of the schedule, which
// https://ui.perfetto.dev displays, and reports the most expensive parts. A background thread writes; a file that
// cannot be written is a warning. Batches that are not recorded take about a microsecond longer. Recorded batches of a
// small network take twice as long with operators, because each operator is recorded, and a few per cent longer
// without.
class COMPOSER_EXPORT Profiler final : public Callback, public CallWatcher {
 public:
  explicit Profiler(ProfilerOptions options = {});
  explicit Profiler(EmptyOptions) : Profiler() {}
  ~Profiler() override;
  Profiler(Profiler&&) noexcept;
  StateDict local_hparams() const override;

  // The report of the last trace as a table of lines: where a batch's time was spent, by event and plug-in, and the
  // most expensive operators. Empty before the first trace. Waits until the file of the trace is written.
  std::string report() const;

  void init(const State& state, Logger& logger) override;
  void after_load(const State& state, Logger& logger) override;
  void close(const State& state, Logger& logger) override;

  void event_begins(Event event, const State& state) override;
  void event_ends(Event event, const State& state) override;
  void call_begins(Event event, Kind kind, const std::string& who) override;
  void call_ends() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace composer::callbacks

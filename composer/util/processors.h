// How busy the processors are, and with whose work: whether a time that was measured is that of a quiet machine.
// Internal.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace composer::util {

// Counted up to one moment, in seconds; only differences mean anything.
struct ProcessorTimes {
  double wall = 0;
  double own = 0;              // of all threads of this process
  double all = 0;              // of every program, on the processors that this thread may use
  double stolen = 0;           // a hypervisor gave these processors to others
  std::int64_t preempted = 0;  // how often a thread of this process had to make room for another one
  int processors = 1;          // that this thread may use
};

// Zeros for what the system does not tell.
ProcessorTimes processor_times();

// Whether other programs slowed this process down between two moments: they used more than a tenth of the processors
// and took some from it, or its threads had to make room very often (for another trainer of this process, say).
bool disturbed(const ProcessorTimes& from, const ProcessorTimes& to);

// Adds what a line of /proc/stat says, "cpu0 user nice system idle iowait irq softirq steal ...", to `all` and
// `stolen`, if it is that of a processor for which `may_use` is true.
void add_processor(std::string_view line, const std::function<bool(int)>& may_use, double seconds_per_tick,
                   ProcessorTimes& times);

// While it lives, processor_times() on this thread is what `read` returns: for tests, on machines that are never quiet.
class ProcessorTimesAre {
 public:
  explicit ProcessorTimesAre(std::function<ProcessorTimes()> read);
  ~ProcessorTimesAre();
  ProcessorTimesAre(const ProcessorTimesAre&) = delete;
  ProcessorTimesAre& operator=(const ProcessorTimesAre&) = delete;

 private:
  std::function<ProcessorTimes()> read_;
  const std::function<ProcessorTimes()>* before_;
};

}  // namespace composer::util

// Measures how busy the processors are, and whether other programs use them: whether a measured time is that of a quiet
// machine. Internal.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

namespace composer::util {

// Times counted up to one moment, in seconds; only differences are meaningful.
struct ProcessorTimes {
  double wall = 0;
  double own = 0;              // used by all threads of this process
  double all = 0;              // used by all programs on the processors that this thread may use
  double stolen = 0;           // for which a hypervisor gave these processors to other machines
  std::int64_t preempted = 0;  // how often a thread of this process was preempted by another thread
  int processors = 1;          // number of processors that this thread may use
};

// Fields that the system does not report are 0.
ProcessorTimes processor_times();

// Whether this process was slowed down between two moments: a hypervisor took more than a tenth of the processors,
// other programs used more than a tenth of them and preempted this process, or its threads were preempted very often
// (by another trainer of this process, for example).
bool disturbed(const ProcessorTimes& from, const ProcessorTimes& to);

// Parses a line of /proc/stat, "cpu0 user nice system idle iowait irq softirq steal ...". If the line belongs to a
// processor for which `may_use` returns true, adds its times to `all` and `stolen`.
void add_processor(std::string_view line, const std::function<bool(int)>& may_use, double seconds_per_tick,
                   ProcessorTimes& times);

// While it lives, processor_times() on this thread returns what `read` returns. For tests, which run on busy machines.
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

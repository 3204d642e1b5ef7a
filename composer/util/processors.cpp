#include "composer/util/processors.h"

#include <chrono>
#include <fstream>
#include <sched.h>
#include <string>
#include <unistd.h>
#include <utility>

#include <sys/resource.h>

#include "composer/util/text.h"

namespace composer::util {
namespace {

constexpr double kShareOfOthers = 0.1;   // share of the processors that other programs may use without being counted
constexpr double kInaccuracy = 0.02;     // seconds; the system counts in ticks of 10 ms
constexpr double kPreemptedNow = 10;     // preemptions per second that count, if other programs also use the processors
constexpr double kPreemptedOften = 150;  // preemptions per second that count in any case
constexpr std::int64_t kPreemptedSome = 10;  // fewer preemptions never count

thread_local const std::function<ProcessorTimes()>* instead = nullptr;

double seconds(const timeval& time) {
  constexpr double kMicro = 1e-6;
  return static_cast<double>(time.tv_sec) + kMicro * static_cast<double>(time.tv_usec);
}

}  // namespace

void add_processor(std::string_view line, const std::function<bool(int)>& may_use, double seconds_per_tick,
                   ProcessorTimes& times) {
  constexpr std::string_view kCpu = "cpu";
  // The line with the sum of all processors.
  if (!line.starts_with(kCpu) || line.size() == kCpu.size() || line[kCpu.size()] == ' ') return;
  InText in(std::string(line.substr(kCpu.size())));
  int processor = -1;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, soft_irq = 0, stolen = 0;
  if (!(in >> processor >> user >> nice >> system >> idle >> waiting >> irq >> soft_irq >> stolen)) return;
  if (!may_use(processor)) return;
  ++times.processors;
  times.all += seconds_per_tick * (user + nice + system + irq + soft_irq);
  times.stolen += seconds_per_tick * stolen;
}

ProcessorTimes processor_times() {
  if (instead) return (*instead)();
  ProcessorTimes times;
  times.wall = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    times.own = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    times.preempted = usage.ru_nivcsw;
  }
  cpu_set_t mine;
  if (::sched_getaffinity(0, sizeof mine, &mine) != 0) return times;  // there are more processors than `mine` holds
  const auto may_use = [&mine](int processor) { return processor < CPU_SETSIZE && CPU_ISSET(processor, &mine); };
  const double per_tick = 1 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  times.processors = 0;
  std::ifstream stat("/proc/stat");
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");)
    add_processor(line, may_use, per_tick, times);
  if (times.processors == 0) times.processors = 1;
  return times;
}

bool disturbed(const ProcessorTimes& from, const ProcessorTimes& to) {
  const double wall = to.wall - from.wall;
  const double enough = kShareOfOthers * to.processors * wall + kInaccuracy;
  const double others = (to.all - from.all) - (to.own - from.own);
  const std::int64_t preempted = to.preempted - from.preempted;
  const auto often = [&](double a_second) { return static_cast<double>(preempted) > a_second * wall; };
  if (to.stolen - from.stolen > enough) return true;
  if (others > enough && often(kPreemptedNow)) return true;
  return preempted >= kPreemptedSome && often(kPreemptedOften);
}

ProcessorTimesAre::ProcessorTimesAre(std::function<ProcessorTimes()> read)
    : read_(std::move(read)), before_(std::exchange(instead, &read_)) {}

ProcessorTimesAre::~ProcessorTimesAre() { instead = before_; }

}  // namespace composer::util

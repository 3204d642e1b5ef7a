#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "composer/profiler/operators.h"

namespace composer::profiler {

// Nanoseconds since the epoch of the system's clock. The result is steady: the system's clock is read only once.
std::int64_t now_ns();

// What the training thread did from begin_ns to end_ns.
struct Span {
  std::uint32_t name = 0;  // number of the name
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t epoch = 0, batch = 0;  // the counts when it began
};

// Texts by number, so that recording a span copies no text.
class Names {
 public:
  std::uint32_t number_of(std::string_view kind, std::string_view who, std::string_view what);
  std::vector<std::string> all() const;  // in the order of their numbers

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::string key_;
};

// Measurements of the machine at one moment, such as "cpu_percentage".
struct Counter {
  std::string name;  // name of the track
  std::int64_t at_ns = 0;
  std::vector<std::pair<std::string, double>> values;
};

// The recording of consecutive batches.
struct Trace {
  std::int64_t begin_ns = 0, end_ns = 0, batches = 0;
  std::vector<std::string> names;
  std::vector<Span> spans;  // of one thread: any two are disjoint, or one contains the other
  std::vector<OperatorCall> operators;
  std::vector<Counter> counters;
  std::int64_t dropped = 0;  // number of spans that were dropped for lack of space
};

// The trace in Chrome's trace format, as an array. chrome://tracing and https://ui.perfetto.dev read it, also if its
// end is missing. Times are relative to the trace's begin, which is in the metadata "trace_begin".
std::string chrome_json(const Trace& trace, std::string_view process, int rank);

// Costs summed by name. `self_ns` excludes the time of nested spans or calls; `total_ns` includes it.
struct Cost {
  std::int64_t calls = 0, self_ns = 0, total_ns = 0;
};
std::map<std::string, Cost> costs_of_spans(const Trace& trace);
// Of devices if there are any, otherwise of the host.
std::map<std::string, Cost> costs_of_operators(const Trace& trace);

}  // namespace composer::profiler

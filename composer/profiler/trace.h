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

// Nanoseconds since the epoch of the system's clock, but steady: that clock is read once.
std::int64_t now_ns();

// What the training thread did from begin_ns to end_ns.
struct Span {
  std::uint32_t name = 0;  // its number
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t epoch = 0, batch = 0;  // that were counted when it began
};

// Texts by number, so that what records a span copies none.
class Names {
 public:
  std::uint32_t number_of(std::string_view kind, std::string_view who, std::string_view what);
  std::vector<std::string> all() const;  // by number

 private:
  std::unordered_map<std::string, std::uint32_t> numbers_;
  std::string key_;
};

// Numbers of the machine at one moment, as "cpu_percentage".
struct Counter {
  std::string name;  // of the track
  std::int64_t at_ns = 0;
  std::vector<std::pair<std::string, double>> values;
};

// All that was recorded of some batches in a row.
struct Trace {
  std::int64_t begin_ns = 0, end_ns = 0, batches = 0;
  std::vector<std::string> names;
  std::vector<Span> spans;  // of one thread: any two are apart, or one is within the other
  std::vector<OperatorCall> operators;
  std::vector<Counter> counters;
  std::int64_t dropped = 0;  // spans, for want of room
};

// Chrome's trace format, as an array: chrome://tracing and https://ui.perfetto.dev read it, also if its end is missing.
// Times count from the trace's begin, which is in the metadata "trace_begin".
std::string chrome_json(const Trace& trace, std::string_view process, int rank);

// The time of each that is not spent within another, summed by name. `total_ns` is the time within it, too.
struct Cost {
  std::int64_t calls = 0, self_ns = 0, total_ns = 0;
};
std::map<std::string, Cost> costs_of_spans(const Trace& trace);
std::map<std::string, Cost> costs_of_operators(const Trace& trace);  // of the host, or of devices where there are any

}  // namespace composer::profiler

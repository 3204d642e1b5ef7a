#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "composer/profiler/trace.h"

namespace composer::profiler {

// Records the spans of one thread: events, which may be nested, and calls within them. Open events and calls are also
// tracked while nothing is recorded, so that a recording may begin and end anywhere.
class SpanRecorder {
 public:
  std::uint32_t name_of(std::string_view kind, std::string_view who, std::string_view what) {
    return names_.number_of(kind, who, what);
  }

  bool is_recording() const { return recording_; }
  void start(std::int64_t begin_ns);  // open spans begin at `begin_ns`
  void stop(std::int64_t end_ns);     // open spans end at `end_ns`
  void move_to(Trace& trace);         // moves the recorded spans

  void begin_event(std::uint32_t name, std::int64_t epoch, std::int64_t batch);
  void end_event(std::uint32_t name);  // also ends events within it, which were left by an error
  void begin_call(std::uint32_t name);
  void end_call();
  void forget_events() { open_events_.clear(); }

 private:
  void add(Span span, std::int64_t end_ns);

  Names names_;
  bool recording_ = false;
  std::int64_t begin_ns_ = 0;
  std::vector<Span> spans_;
  std::int64_t dropped_ = 0;
  std::vector<Span> open_events_;
  std::vector<Span> open_calls_;
};

}  // namespace composer::profiler

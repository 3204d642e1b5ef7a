#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "composer/profiler/trace.h"

namespace composer::profiler {

// The spans of one thread: of events, which may be within each other, and of calls within these. What is open is known
// also while nothing is recorded, so that a recording may begin and end anywhere.
class SpanRecorder {
 public:
  std::uint32_t name_of(std::string_view kind, std::string_view who, std::string_view what) {
    return names_.number_of(kind, who, what);
  }

  bool is_recording() const { return recording_; }
  void start(std::int64_t begin_ns);  // what has begun before begins then
  void stop(std::int64_t end_ns);     // what is still open is as long as the recording
  void move_to(Trace& trace);         // what was recorded

  void begin_event(std::uint32_t name, std::int64_t epoch, std::int64_t batch);
  void end_event(std::uint32_t name);  // and with it those within it, which were left by an error
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

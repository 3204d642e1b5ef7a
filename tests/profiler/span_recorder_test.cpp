#include "composer/profiler/span_recorder.h"

#include <string>
#include <vector>

#include "composer/profiler/trace.h"
#include "tests/support/doctest.h"

namespace composer::profiler::span_recorder_test {
namespace {

std::vector<std::string> names_of(const Trace& trace) {
  std::vector<std::string> names;
  for (const Span& span : trace.spans) names.push_back(trace.names.at(span.name));
  return names;
}

using Names = std::vector<std::string>;

TEST_CASE("Spans are in the order of their beginnings, the outer before the inner, with epoch and batch") {
  SpanRecorder spans;
  const std::uint32_t batch = spans.name_of("event/", "batch", ""), forward = spans.name_of("event/", "forward", "");
  spans.start(now_ns());
  spans.begin_event(batch, 2, 7);
  spans.begin_event(forward, 2, 7);
  spans.begin_call(spans.name_of("callback/", "A", "/event/before_forward"));
  spans.end_call();
  spans.end_event(forward);
  spans.end_event(batch);
  spans.stop(now_ns());
  Trace trace;
  spans.move_to(trace);
  CHECK(names_of(trace) == Names{"event/batch", "event/forward", "callback/A/event/before_forward"});
  for (const Span& span : trace.spans) {
    CHECK(span.epoch == 2);
    CHECK(span.batch == 7);
    CHECK(span.begin_ns <= span.end_ns);
  }
}

TEST_CASE("What is open when a recording begins or ends is cut there, and what ends before is not in it") {
  SpanRecorder spans;
  const std::uint32_t outer = spans.name_of("event/", "outer", ""), inner = spans.name_of("event/", "inner", "");
  spans.begin_event(outer, 0, 0);
  spans.begin_event(inner, 0, 0);
  spans.end_event(inner);
  spans.begin_call(0);  // goes on in the recording, which does not know its name
  const std::int64_t begin = now_ns();
  spans.start(begin);
  CHECK(spans.is_recording());
  spans.end_call();
  spans.stop(begin + 1000);
  CHECK_FALSE(spans.is_recording());
  Trace trace;
  spans.move_to(trace);
  REQUIRE(names_of(trace) == Names{"event/outer"});
  CHECK(trace.spans[0].begin_ns == begin);
  CHECK(trace.spans[0].end_ns == begin + 1000);
  spans.forget_events();
  spans.start(begin);
  spans.stop(begin + 1);
  spans.move_to(trace);
  CHECK(trace.spans.empty());
}

TEST_CASE("The end of an event ends those within it, which an error has left, and no others") {
  SpanRecorder spans;
  const std::uint32_t outer = spans.name_of("event/", "outer", ""), inner = spans.name_of("event/", "inner", "");
  spans.start(now_ns());
  spans.begin_event(outer, 0, 0);
  spans.begin_event(inner, 0, 0);
  spans.end_event(outer);
  spans.end_event(inner);  // is not open
  spans.begin_event(inner, 0, 1);
  spans.end_event(inner);
  spans.stop(now_ns());
  Trace trace;
  spans.move_to(trace);
  CHECK(names_of(trace) == Names{"event/outer", "event/inner"});
}

TEST_CASE("A recording has room for a million spans, and counts those that are dropped") {
  SpanRecorder spans;
  const std::uint32_t name = spans.name_of("event/", "batch", "");
  spans.start(now_ns());
  for (int i = 0; i < (1 << 20) + 3; ++i) {
    spans.begin_event(name, 0, i);
    spans.end_event(name);
  }
  spans.stop(now_ns());
  Trace trace;
  spans.move_to(trace);
  CHECK(trace.spans.size() == 1 << 20);
  CHECK(trace.dropped == 3);
  spans.start(now_ns());
  spans.stop(now_ns());
  spans.move_to(trace);
  CHECK(trace.dropped == 0);
}

}  // namespace
}  // namespace composer::profiler::span_recorder_test

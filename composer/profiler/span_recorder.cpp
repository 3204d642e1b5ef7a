#include "composer/profiler/span_recorder.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace composer::profiler {
namespace {

constexpr std::size_t kMostSpans = 1 << 20;  // in a trace; they take 40 MB

}  // namespace

void SpanRecorder::start(std::int64_t begin_ns) {
  begin_ns_ = begin_ns;
  spans_.clear();
  dropped_ = 0;
  recording_ = true;
}

void SpanRecorder::stop(std::int64_t end_ns) {
  recording_ = false;
  for (const Span& event : open_events_) add(event, end_ns);
}

void SpanRecorder::move_to(Trace& trace) {
  trace.names = names_.all();
  trace.dropped = dropped_;
  trace.spans = std::exchange(spans_, {});
  std::ranges::stable_sort(trace.spans, [](const Span& a, const Span& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
  });
}

void SpanRecorder::begin_event(std::uint32_t name, std::int64_t epoch, std::int64_t batch) {
  open_events_.push_back({name, recording_ ? now_ns() : 0, 0, epoch, batch});
}

void SpanRecorder::end_event(std::uint32_t name) {
  const auto opened =
      std::find_if(open_events_.rbegin(), open_events_.rend(), [&](const Span& open) { return open.name == name; });
  if (opened == open_events_.rend()) return;
  if (recording_) add(*opened, now_ns());
  open_events_.erase(opened.base() - 1, open_events_.end());
}

void SpanRecorder::begin_call(std::uint32_t name) {
  Span call;
  if (recording_) {
    if (!open_events_.empty()) call = open_events_.back();  // copies its epoch and batch
    call.name = name;
    call.begin_ns = now_ns();
  }
  open_calls_.push_back(call);
}

void SpanRecorder::end_call() {
  const Span call = open_calls_.back();
  open_calls_.pop_back();
  if (recording_ && call.begin_ns != 0) add(call, now_ns());
}

void SpanRecorder::add(Span span, std::int64_t end_ns) {
  span.begin_ns = std::max(span.begin_ns, begin_ns_);
  span.end_ns = end_ns;
  if (spans_.size() < kMostSpans)
    spans_.push_back(span);
  else
    ++dropped_;
}

}  // namespace composer::profiler

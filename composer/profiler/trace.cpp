#include "composer/profiler/trace.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"

namespace composer::profiler {
namespace {

constexpr int kTraining = 1;           // thread number of spans
constexpr int kFirstOfOperators = 10;  // thread numbers of operators begin here

std::string quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Microseconds with three decimals.
std::string microseconds(std::int64_t ns) {
  const std::string digits = std::to_string(1000 + ns % 1000);
  return std::to_string(ns / 1000) + '.' + digits.substr(1);
}

// The part of a name before the slash: "event" for "event/batch".
std::string_view category_of(std::string_view name) { return name.substr(0, name.find('/')); }

class Json {
 public:
  // Readers store times as doubles of microseconds, which are too coarse for times since 1970, so times are relative to
  // `base_ns`.
  Json(int pid, std::int64_t base_ns) : pid_(std::to_string(pid)), base_ns_(base_ns) {}
  void metadata(std::string_view what, int tid, std::string_view argument, const std::string& value) {
    line(join(R"({"name":")", what, R"(","ph":"M","pid":)", pid_, R"(,"tid":)", tid, R"(,"args":{")", argument, R"(":)",
              value, "}}"));
  }
  void thread(int tid, std::string_view name, int order) {
    metadata("thread_name", tid, "name", quoted(name));
    metadata("thread_sort_index", tid, "sort_index", std::to_string(order));
  }
  void complete(std::string_view name, std::string_view category, std::int64_t begin, std::int64_t duration, int tid,
                std::string_view arguments) {
    line(join(R"({"name":)", quoted(name), R"(,"cat":")", category, R"(","ph":"X","ts":)",
              microseconds(std::max<std::int64_t>(begin - base_ns_, 0)), R"(,"dur":)", microseconds(duration),
              R"(,"pid":)", pid_, R"(,"tid":)", tid, R"(,"args":{)", arguments, "}}"));
  }
  void counter(const Counter& counter) {
    std::string values;
    for (const auto& [key, value] : counter.values)
      values += join(values.empty() ? "" : ",", quoted(key), ':', nlohmann::json(value).dump());
    line(join(R"({"name":)", quoted(counter.name), R"(,"ph":"C","ts":)",
              microseconds(std::max<std::int64_t>(counter.at_ns - base_ns_, 0)), R"(,"pid":)", pid_, R"(,"args":{)",
              values, "}}"));
  }
  std::string end() { return text_ + "\n]\n"; }

 private:
  void line(const std::string& object) {
    text_ += text_.size() > 1 ? ",\n" : "\n";
    text_ += object;
  }
  std::string pid_, text_ = "[";
  std::int64_t base_ns_;
};

struct Interval {
  std::int64_t begin, end;
};

// Calls visit(index, self time) for each interval. Any two intervals are disjoint, or one contains the other.
template <class Visit>
void for_self_times(const std::vector<Interval>& all, const Visit& visit) {
  std::vector<std::size_t> order(all.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&all](std::size_t a, std::size_t b) {
    return all[a].begin != all[b].begin ? all[a].begin < all[b].begin : all[a].end > all[b].end;
  });
  std::vector<std::int64_t> self(all.size());
  std::vector<std::size_t> open;
  for (const std::size_t i : order) {
    while (!open.empty() && all[open.back()].end <= all[i].begin) open.pop_back();
    self[i] = all[i].end - all[i].begin;
    if (!open.empty()) self[open.back()] -= std::min(all[i].end, all[open.back()].end) - all[i].begin;
    open.push_back(i);
  }
  for (std::size_t i = 0; i < all.size(); ++i) visit(i, std::max<std::int64_t>(self[i], 0));
}

std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The offset from the steady clock to the system's clock, from the two readings with the least time in between.
std::int64_t offset_of_clocks() {
  std::int64_t offset = 0, least = std::numeric_limits<std::int64_t>::max();
  for (int i = 0; i < 10; ++i) {
    const std::int64_t before = steady_ns();
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::int64_t between = steady_ns() - before;
    if (between >= least) continue;
    least = between;
    offset = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - before - between / 2;
  }
  return offset;
}

void add(Cost& cost, std::int64_t self, std::int64_t total) {
  ++cost.calls;
  cost.self_ns += self;
  cost.total_ns += total;
}

}  // namespace

std::int64_t now_ns() {
  static const std::int64_t offset = offset_of_clocks();
  return offset + steady_ns();
}

std::uint32_t Names::number_of(std::string_view kind, std::string_view who, std::string_view what) {
  key_.assign(kind);
  for (const std::string_view part : {who, what}) key_.append(part);
  return numbers_.try_emplace(key_, static_cast<std::uint32_t>(numbers_.size())).first->second;
}

std::vector<std::string> Names::all() const {
  std::vector<std::string> texts(numbers_.size());
  for (const auto& [text, number] : numbers_) texts[number] = text;
  return texts;
}

std::string chrome_json(const Trace& trace, std::string_view process, int rank) {
  Json json(rank, trace.begin_ns);
  json.metadata("process_name", 0, "name", quoted(process));
  json.metadata("trace_begin", 0, "unix_ns", std::to_string(trace.begin_ns));
  json.metadata("process_sort_index", 0, "sort_index", std::to_string(rank));
  json.thread(kTraining, "training", 0);
  for (const Span& span : trace.spans)
    json.complete(trace.names[span.name], category_of(trace.names[span.name]), span.begin_ns,
                  span.end_ns - span.begin_ns, kTraining, join(R"("epoch":)", span.epoch, R"(,"batch":)", span.batch));
  // Device and stream, or -1 and the host's thread; the value is its number.
  std::map<std::pair<int, std::uint64_t>, int> threads;
  for (const OperatorCall& call : trace.operators) {
    const auto [thread, is_new] =
        threads.try_emplace({call.device, call.thread}, kFirstOfOperators + static_cast<int>(threads.size()));
    if (is_new)
      json.thread(thread->second,
                  call.device < 0 ? join("operators of thread ", call.thread)
                                  : join("device ", call.device, ", stream ", call.thread),
                  thread->second);
    json.complete(call.name, call.device < 0 ? "operator" : "kernel", call.begin_ns, call.duration_ns, thread->second,
                  call.shapes.empty() ? std::string() : join(R"("shapes":)", quoted(call.shapes)));
  }
  for (const Counter& counter : trace.counters) json.counter(counter);
  return json.end();
}

std::map<std::string, Cost> costs_of_spans(const Trace& trace) {
  std::vector<Interval> intervals;
  intervals.reserve(trace.spans.size());
  for (const Span& span : trace.spans) intervals.push_back({span.begin_ns, span.end_ns});
  std::map<std::string, Cost> costs;
  for_self_times(intervals, [&](std::size_t i, std::int64_t self) {
    add(costs[trace.names[trace.spans[i].name]], self, intervals[i].end - intervals[i].begin);
  });
  return costs;
}

std::map<std::string, Cost> costs_of_operators(const Trace& trace) {
  const bool on_device =
      std::ranges::any_of(trace.operators, [](const OperatorCall& call) { return call.device >= 0; });
  std::map<std::pair<int, std::uint64_t>, std::vector<const OperatorCall*>> threads;
  for (const OperatorCall& call : trace.operators)
    if ((call.device >= 0) == on_device) threads[{call.device, call.thread}].push_back(&call);
  std::map<std::string, Cost> costs;
  for (const auto& [thread, calls] : threads) {
    std::vector<Interval> intervals;
    intervals.reserve(calls.size());
    for (const OperatorCall* call : calls) intervals.push_back({call->begin_ns, call->begin_ns + call->duration_ns});
    for_self_times(intervals, [&, &of_thread = calls](std::size_t i, std::int64_t self) {
      add(costs[of_thread[i]->name], self, of_thread[i]->duration_ns);
    });
  }
  return costs;
}

}  // namespace composer::profiler

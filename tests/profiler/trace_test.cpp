#include "composer/profiler/trace.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "composer/profiler/report.h"
#include "tests/support/doctest.h"

namespace composer::profiler::trace_test {
namespace {

constexpr std::int64_t kBegin = 1'764'000'000'123'456'789;  // has more digits than a double

Trace example() {
  Trace trace{.begin_ns = kBegin, .end_ns = kBegin + 2000, .batches = 2};
  trace.names = {"event/batch", "event/forward", "callback/A \"b\"/event/batch_end"};
  // a batch of 1000 ns: forward 300 of them with 100 in a call within it; then a call; and again, without forward
  trace.spans = {{0, kBegin, kBegin + 1000, 3, 40},
                 {1, kBegin + 100, kBegin + 400, 3, 40},
                 {2, kBegin + 200, kBegin + 300, 3, 40},
                 {2, kBegin + 400, kBegin + 450, 3, 40},
                 {0, kBegin + 1000, kBegin + 2000, 3, 41}};
  trace.operators = {{"aten::addmm", kBegin + 110, 200, 1, -1, "[2, 3]"},
                     {"aten::mm", kBegin + 120, 150, 1, -1, ""},
                     {"aten::addmm", kBegin + 115, 50, 2, -1, ""}};
  return trace;
}

}  // namespace

TEST_CASE("The costs of spans are what is not spent within others") {
  const std::map<std::string, Cost> costs = costs_of_spans(example());
  CHECK(costs.at("event/batch").calls == 2);
  CHECK(costs.at("event/batch").total_ns == 2000);
  CHECK(costs.at("event/batch").self_ns == 2000 - 300 - 50);
  CHECK(costs.at("event/forward").self_ns == 200);
  CHECK(costs.at("callback/A \"b\"/event/batch_end").self_ns == 150);
}

TEST_CASE("The costs of operators are those of devices where there are any, and each thread's are apart") {
  Trace trace = example();
  const std::map<std::string, Cost> costs = costs_of_operators(trace);
  CHECK(costs.at("aten::addmm").calls == 2);
  CHECK(costs.at("aten::addmm").self_ns == 200 - 150 + 50);
  CHECK(costs.at("aten::mm").self_ns == 150);
  trace.operators.push_back({"gemm_kernel", kBegin, 70, 7, 0, ""});
  CHECK(costs_of_operators(trace).size() == 1);
  CHECK(costs_of_operators(trace).at("gemm_kernel").self_ns == 70);
}

TEST_CASE("A trace is JSON in Chrome's format, with nanoseconds since its begin to the last digit") {
  const std::string text = chrome_json(example(), "rank 2 training", 2);
  CHECK(text.find("\"ts\":0.200,") != std::string::npos);
  CHECK(text.find("\"unix_ns\":1764000000123456789}") != std::string::npos);
  CHECK(text.find("\"dur\":0.300,") != std::string::npos);
  const nlohmann::json events = nlohmann::json::parse(text);
  std::size_t spans = 0, operators = 0;
  for (const auto& event : events) {
    CHECK(event.at("pid") == 2);
    if (event.at("ph") != "X") continue;
    if (event.at("cat") == "operator") {
      ++operators;
      CHECK(event.at("tid") != 1);
    } else {
      ++spans;
      CHECK(event.at("tid") == 1);
      CHECK(event.at("args").at("epoch") == 3);
    }
  }
  CHECK(spans == 5);
  CHECK(operators == 3);
  CHECK(events.back().at("name") == "aten::addmm");
  CHECK(events.at(5).at("name") == "event/batch");
  CHECK(events.at(5).at("cat") == "event");
  CHECK(text.find(R"(callback/A \"b\"/event/batch_end)") != std::string::npos);
  CHECK(text.find(R"("shapes":"[2, 3]")") != std::string::npos);
}

TEST_CASE("A trace without anything is JSON, too, and its report is empty") {
  CHECK(nlohmann::json::parse(chrome_json({}, "p", 0)).is_array());
  CHECK(report({}).empty());
}

TEST_CASE("The report gives times in us up to a millisecond, in ms up to a second, and then in s") {
  const auto says = [](std::int64_t ns, const char* text) {
    Trace trace{.begin_ns = 0, .end_ns = ns, .batches = 1};
    return report(trace).find(text) != std::string::npos;
  };
  CHECK(says(999'900, "1 batch, 999.9 us each"));
  CHECK(says(1'000'000, "1 batch, 1.00 ms each"));
  CHECK(says(999'000'000, "999.00 ms each"));
  CHECK(says(1'000'000'000, "1.00 s each"));
}

TEST_CASE("The report's lines fit into 79 columns, and its shares into the whole") {
  Trace trace = example();
  trace.names[1] = std::string(200, 'x');
  for (int i = 0; i < 40; ++i)
    trace.operators.push_back({"aten::op" + std::to_string(i), kBegin + 500 + 200 * i, 150, 3, -1, ""});
  const std::string text = report(trace, 10);
  CHECK(text.find("2 batches, 1.0 us each") != std::string::npos);
  CHECK(text.find("32 others") != std::string::npos);
  CHECK(std::ranges::count(text.substr(text.find("Operators,")), '\n') == 13);  // two lines above 10 and the others
  CHECK(text.find(std::string(39, 'x') + "...") != std::string::npos);
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    CHECK(end - begin < 80);
  CHECK(text.find("82.5 %") != std::string::npos);  // 1650 of 2000 ns are in batches alone
}

}  // namespace composer::profiler::trace_test

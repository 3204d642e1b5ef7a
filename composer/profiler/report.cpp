#include "composer/profiler/report.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "composer/core/error.h"
#include "composer/util/text.h"

namespace composer::profiler {
namespace {

constexpr std::int64_t kShown = 100;  // ns in all batches; events and calls that take less are not shown

std::string duration(double ns) {
  const char* format = ns < 1e6 ? "%.1f us" : ns < 1e9 ? "%.2f ms" : "%.2f s";
  const double unit = ns < 1e6 ? 1e3 : ns < 1e9 ? 1e6 : 1e9;
  return util::printed(format, ns / unit);
}

// Names are cut to the width of their column; the other columns are aligned to the right.
std::string line(const std::string& name, const std::string& calls, const std::string& time, const std::string& share) {
  constexpr int kColumns = 42, kEllipsis = 3;  // a line has 79 columns
  const bool fits = name.size() <= kColumns;
  return util::printed("  %-*.*s%s %10s %14s %8s\n", fits ? kColumns : kColumns - kEllipsis,
                       fits ? kColumns : kColumns - kEllipsis, name.c_str(), fits ? "" : "...", calls.c_str(),
                       time.c_str(), share.c_str());
}

// Shortens libtorch's name for a step of a backward pass to the name of the evaluated function.
std::string shown(const std::string& name) {
  constexpr std::string_view kEvaluated = "autograd::engine::evaluate_function: ";
  return name.starts_with(kEvaluated) ? "autograd: " + name.substr(kEvaluated.size()) : name;
}

std::string number(double value) {
  return util::printed(value == static_cast<double>(static_cast<std::int64_t>(value)) ? "%.0f" : "%.1f", value);
}

// One line for each name, the longest time first, then one for the remaining names: times per batch, and shares of
// `whole_ns`.
std::string table(const std::map<std::string, Cost>& costs, std::int64_t batches, double whole_ns, int rows) {
  std::vector<std::pair<std::string, Cost>> longest(costs.begin(), costs.end());
  std::erase_if(longest, [](const auto& cost) { return cost.second.self_ns < kShown; });
  std::ranges::stable_sort(longest, std::greater<>(), [](const auto& cost) { return cost.second.self_ns; });
  const auto row = [&](const std::string& name, const Cost& cost) {
    const double per_batch = static_cast<double>(cost.self_ns) / static_cast<double>(batches);
    return line(name, number(static_cast<double>(cost.calls) / static_cast<double>(batches)), duration(per_batch),
                util::printed("%.1f %%", 100 * static_cast<double>(cost.self_ns) / whole_ns));
  };
  std::string text = line("", "calls", "time", "share");
  Cost others;
  for (std::size_t i = 0; i < longest.size(); ++i) {
    const Cost& cost = longest[i].second;
    if (i < static_cast<std::size_t>(rows)) {
      text += row(shown(longest[i].first), cost);
    } else {
      others.calls += cost.calls;
      others.self_ns += cost.self_ns;
    }
  }
  if (others.calls > 0) text += row(join(longest.size() - static_cast<std::size_t>(rows), " others"), others);
  return text;
}

}  // namespace

std::string report(const Trace& trace, int rows) {
  if (trace.batches == 0) return {};
  const auto whole = static_cast<double>(trace.end_ns - trace.begin_ns);
  std::string text = join("Where the time of a batch goes: ", trace.batches, trace.batches == 1 ? " batch" : " batches",
                          ", ", duration(whole / static_cast<double>(trace.batches)),
                          " each\n(calls and time per batch; of events and calls without what is called within)\n");
  text += table(costs_of_spans(trace), trace.batches, whole, rows);
  if (trace.dropped > 0) text += join("  ", trace.dropped, " spans were dropped: too many for one trace\n");
  if (trace.operators.empty()) return text;
  text += "Operators, without the operators that they call:\n";
  return text + table(costs_of_operators(trace), trace.batches, whole, rows);
}

}  // namespace composer::profiler

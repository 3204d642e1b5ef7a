#pragma once
// How benchmarks measure and report. Contenders take turns in short segments, in a new random order for each round, and
// are compared within a round, so that other work of the machine affects all of them alike.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace composer::bench {

struct Contender {
  std::string name;              // stays the same between revisions
  std::function<void(int)> run;  // does the work this number of times
};

// Microseconds per call, one entry per round.
struct Series {
  std::vector<double> cpu, wall;
};

inline double microseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// The quantile: `share` of the values are below it. `values` is not empty.
inline double quantile(std::vector<double> values, double share) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::ranges::nth_element(values, at);
  return *at;
}
inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// Runs each contender `calls` times per round, after one round that is not measured.
inline std::vector<Series> take_turns(const std::vector<Contender>& contenders, int rounds, int calls) {
  std::vector<Series> series(contenders.size());
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < contenders.size(); ++i) order.push_back(i);
  std::mt19937 random(17);
  for (int round = -1; round < rounds; ++round) {
    std::ranges::shuffle(order, random);
    for (const std::size_t i : order) {
      const double wall = microseconds(CLOCK_MONOTONIC), cpu = microseconds(CLOCK_PROCESS_CPUTIME_ID);
      contenders[i].run(calls);
      if (round < 0) continue;
      series[i].cpu.push_back((microseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) / calls);
      series[i].wall.push_back((microseconds(CLOCK_MONOTONIC) - wall) / calls);
    }
  }
  return series;
}

struct Options {
  double effort = 1;  // factor for the default number of rounds
  std::string only;   // only groups whose names contain this text
  std::string json;   // path of a file
};

// Parses --effort X, --only TEXT, --json FILE. For anything else, prints the usage and ends the program.
inline Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    bool known = !value.empty();
    if (name == "--json") {
      options.json = value;
    } else if (name == "--only") {
      options.only = value;
    } else if (name == "--effort") {
      const auto read = std::from_chars(value.data(), value.data() + value.size(), options.effort);
      known = read.ec == std::errc() && options.effort > 0;
    } else {
      known = false;
    }
    if (known) continue;
    std::cerr << "usage: " << argv[0] << " [--effort 1] [--only TEXT] [--json FILE]\n";
    std::exit(2);
  }
  return options;
}

// Writes the file for scripts/bench; with an empty name nothing is written.
inline void write_json(const std::string& name, const nlohmann::ordered_json& results) {
  if (name.empty()) return;
  std::ofstream file(name);
  file << results.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + name);
}

// Prints a table, and collects the file for scripts/bench.
class Report {
 public:
  explicit Report(Options options) : options_(std::move(options)) {}

  bool wants(const std::string& group) const { return group.find(options_.only) != std::string::npos; }

  // Measures, and prints each contender compared with the first.
  void compare(const std::string& group, const std::vector<Contender>& contenders, int rounds, int calls) {
    rounds = std::max(3, static_cast<int>(rounds * options_.effort));
    const std::vector<Series> series = take_turns(contenders, rounds, calls);
    std::printf("%s: %d rounds of %d calls\n%-34s %11s %11s %11s %23s %9s %17s\n", group.c_str(), rounds, calls, "",
                "us (cpu)", "us (wall)", "more, us", "(half of the rounds)", "ratio", "(half of them)");
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const double cpu = median(series[i].cpu);
      std::printf("  %-32s %11.4f %11.4f", contenders[i].name.c_str(), cpu, median(series[i].wall));
      if (i > 0) print_against(series[0].cpu, series[i].cpu);
      std::printf("\n");
      results_[group + ", " + contenders[i].name] = {{"value", cpu}, {"unit", "us"}};
    }
    std::printf("\n");
  }

  void write() const { write_json(options_.json, results_); }

 private:
  static void print_against(const std::vector<double>& first, const std::vector<double>& other) {
    std::vector<double> more, ratio;
    for (std::size_t round = 0; round < first.size(); ++round) {
      more.push_back(other[round] - first[round]);
      ratio.push_back(other[round] / first[round]);
    }
    std::printf(" %11.4f %11.4f %11.4f %9.4f %8.4f %8.4f", median(more), quantile(more, 0.25), quantile(more, 0.75),
                median(ratio), quantile(ratio, 0.25), quantile(ratio, 0.75));
  }

  Options options_;
  nlohmann::ordered_json results_ = nlohmann::ordered_json::object();
};

}  // namespace composer::bench

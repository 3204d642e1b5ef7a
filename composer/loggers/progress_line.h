#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/loggers/terminal.h"

namespace composer::loggers {

// The content of a progress line.
struct ProgressLine {
  using Metric = std::pair<std::string, std::string>;  // name and value
  struct Evaluation {
    std::string label;
    std::vector<Metric> metrics;
  };

  std::string title;  // "epoch 2/10"
  bool evaluating = false;
  std::int64_t done = 0;
  std::optional<std::int64_t> total;  // unset: neither percentage nor bar
  std::string counts;                 // "291/469"
  std::vector<Metric> metrics;        // most important first
  std::vector<Evaluation> evaluations;
  std::string rate;
  std::optional<double> elapsed, left;  // seconds
};

// A line of at most `columns` columns. The bar takes the free columns. If there are too few, the least important parts
// are left out first.
std::string draw_bar(const ProgressLine& line, const Terminal& terminal, int columns);

// A line without a bar, of any length, with all metrics. On a terminal, speed and times are left out if the line is too
// long, and then metrics get shorter names.
std::string draw_text(const ProgressLine& line, const Terminal& terminal);

}  // namespace composer::loggers

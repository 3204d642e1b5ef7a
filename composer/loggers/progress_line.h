#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "composer/loggers/terminal.h"

namespace composer::loggers {

// What a line of progress says. Keeps no numbers of the run, draws nothing.
struct ProgressLine {
  using Metric = std::pair<std::string, std::string>;  // name and value
  struct Evaluation {
    std::string label;
    std::vector<Metric> metrics;
  };

  std::string title;  // "epoch 2/10"
  bool evaluating = false;
  std::int64_t done = 0;
  std::optional<std::int64_t> total;  // without it, neither percent nor bar
  std::string counts;                 // "291/469"
  std::vector<Metric> metrics;        // most important first
  std::vector<Evaluation> evaluations;
  std::string rate;
  std::optional<double> elapsed, left;  // seconds
};

// One line of at most so many columns: the bar takes what is left over, and what is least important gives way.
std::string draw_bar(const ProgressLine& line, const Terminal& terminal, int columns);

// Without a bar, and with all metrics, however long it gets; on a terminal, speed and times give way, and then metrics
// get shorter names.
std::string draw_text(const ProgressLine& line, const Terminal& terminal);

}  // namespace composer::loggers

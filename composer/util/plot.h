#pragma once
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer {

struct PlotOptions {
  int width = 72, height = 16;    // columns, at least 32, and lines of the plane, at least 4; axis and labels beside
  std::optional<bool> utf8 = {};  // false: ASCII only; unset: as the environment says
};

// A line over a logarithmic axis, to be drawn as text.
struct LogPlot {
  std::vector<double> x, y;         // of one length; x > 0, rising. What is not finite in y is left out
  std::optional<double> top = {};   // larger values leave the plane; unset: the largest is at its edge
  std::optional<double> mark = {};  // an x to be marked
  std::string x_name = {}, y_name = {};

  // Lines of at most `width` columns, each with its end. Throws ConfigError for a size too small; fewer than two points
  // make a line that says so.
  COMPOSER_EXPORT std::string draw(const PlotOptions& options = {}) const;
};

}  // namespace composer

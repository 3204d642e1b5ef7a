#pragma once
#include <optional>
#include <string>
#include <vector>

#include "composer/core/export.h"

namespace composer {

struct PlotOptions {
  int width = 72;                 // columns, at least 32
  int height = 16;                // lines of the plane, at least 4, without the axis
  std::optional<bool> utf8 = {};  // false: only ASCII; unset: as LC_ALL, LC_CTYPE or LANG says
};

// A line over a logarithmic axis, to be drawn as text.
struct LogPlot {
  std::vector<double> x, y;         // of equal length; x > 0, rising. Points whose y is not finite are left out
  std::optional<double> top = {};   // larger values lie outside of the plane; unset: the largest y is at its upper edge
  std::optional<double> mark = {};  // an x at which a mark is drawn
  std::string x_name = {}, y_name = {};

  // Lines of at most `width` columns, each with its line end. Throws ConfigError if the size is too small. If there are
  // fewer than two points, the result is a line that says so.
  COMPOSER_EXPORT std::string draw(const PlotOptions& options = {}) const;
};

}  // namespace composer

#include "composer/util/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "composer/core/error.h"
#include "composer/util/environment.h"
#include "composer/util/text.h"

namespace composer {
namespace {

std::string number(double value, int digits = 3) { return util::printed("%.*g", digits, value); }

// Labels of the upper edge, the middle and the lower edge, with as many digits as are needed to tell them apart.
std::array<std::string, 3> labels_of(double low, double high) {
  constexpr int kMostDigits = 8;
  std::array<std::string, 3> labels;
  for (int digits = 3; digits <= kMostDigits; ++digits) {
    labels = {number(high, digits), number((low + high) / 2, digits), number(low, digits)};
    if (labels[0] != labels[1] && labels[1] != labels[2]) break;
  }
  return labels;
}

std::string power_of_ten(int exponent) {
  return exponent >= -2 && exponent <= 3 ? number(std::pow(10, exponent)) : join("1e", exponent);
}

// A grid of characters, each of which shows several dots.
class Canvas {
 public:
  Canvas(int columns, int rows, bool braille)
      : columns_(columns), rows_(rows), braille_(braille), dots_(static_cast<std::size_t>(columns * rows)) {}

  int wide() const { return columns_ * (braille_ ? 2 : 1); }  // width in dots
  int high() const { return rows_ * (braille_ ? 4 : 1); }

  void dot(int x, int y) {
    static constexpr std::array<std::array<std::uint8_t, 4>, 2> kBits = {{{1, 2, 4, 64}, {8, 16, 32, 128}}};
    if (x < 0 || x >= wide() || y < 0 || y >= high()) return;
    if (braille_)
      dots_[at(x / 2, y / 4)] |= kBits[static_cast<std::size_t>(x % 2)][static_cast<std::size_t>(y % 4)];
    else
      dots_[at(x, y)] = 1;
  }

  // Draws a row of characters. `mark`: a column in which empty characters show a mark.
  std::string row(int y, std::optional<int> mark) const {
    std::string text;
    for (int x = 0; x < columns_; ++x) {
      const std::uint8_t dots = dots_[at(x, y)];
      if (dots == 0)
        text += x != mark ? " " : braille_ ? "┊" : ":";
      else if (!braille_)
        text += '*';
      else  // U+2800 + dots, in UTF-8
        text += {'\xE2', static_cast<char>(0xA0 | (dots >> 6)), static_cast<char>(0x80 | (dots & 0x3F))};
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

 private:
  std::size_t at(int x, int y) const { return static_cast<std::size_t>(y * columns_ + x); }
  int columns_, rows_;
  bool braille_;
  std::vector<std::uint8_t> dots_;
};

// Maps x to a position from 0 to 1 on the axis.
class LogAxis {
 public:
  LogAxis(double low, double high) : low_(std::log10(low)), high_(std::log10(high)) {}
  double share(double x) const { return (std::log10(x) - low_) / (high_ - low_); }
  double at(double share) const { return std::pow(10, low_ + share * (high_ - low_)); }

  struct Tick {
    double share;
    std::string label;
  };
  // Ticks at the powers of ten; at the ends if there are fewer than two of them.
  std::vector<Tick> ticks() const {
    constexpr double kNear = 1e-9;
    std::vector<Tick> list;
    for (int e = static_cast<int>(std::ceil(low_ - kNear)); e <= high_ + kNear; ++e)
      list.push_back({(e - low_) / (high_ - low_), power_of_ten(e)});
    if (list.size() < 2) list = {{0, number(at(0))}, {1, number(at(1))}};
    return list;
  }

 private:
  double low_, high_;
};

void draw_line(Canvas& canvas, const std::vector<double>& shares, const std::vector<double>& heights) {
  const auto last = static_cast<double>(canvas.wide() - 1);
  const auto row_of = [&](double height) {  // values far outside are clamped to slightly outside
    return static_cast<int>(std::lround((1 - std::clamp(height, -1.0, 2.0)) * (canvas.high() - 1)));
  };
  std::optional<int> before;
  for (std::size_t i = 1, x = 0; x < static_cast<std::size_t>(canvas.wide()); ++x) {
    const double share = static_cast<double>(x) / last;
    while (i + 1 < shares.size() && shares[i] < share) ++i;
    const double part = std::clamp((share - shares[i - 1]) / (shares[i] - shares[i - 1]), 0.0, 1.0);
    const int y = row_of(heights[i - 1] + part * (heights[i] - heights[i - 1]));
    const int from = std::min(y, before.value_or(y) + (before.value_or(y) < y ? 1 : 0));
    const int to = std::max(y, before.value_or(y) - (before.value_or(y) > y ? 1 : 0));
    for (int dot = from; dot <= to; ++dot) canvas.dot(static_cast<int>(x), dot);
    before = y;
  }
}

struct Plane {
  std::size_t margin;  // columns for labels, left of the plane
  int columns;
  bool utf8;
  std::optional<int> marked;  // column of the mark

  int column_of(double share) const { return static_cast<int>(std::lround(share * (columns - 1))); }
  std::string left(const std::string& label, const char* edge) const {
    return std::string(margin - label.size(), ' ') + label + ' ' + edge;
  }
};

std::string rows(const Plane& plane, const Canvas& canvas, int height, const std::array<std::string, 3>& labels) {
  std::string text;
  for (int row = 0; row < height; ++row) {
    const std::string* label = nullptr;
    if (row == 0) label = &labels[0];
    if (row == height / 2) label = &labels[1];
    if (row == height - 1) label = &labels[2];
    text += plane.left(label ? *label : "", plane.utf8 ? (label ? "┤" : "│") : "|");
    text += canvas.row(row, plane.marked) + '\n';
  }
  return text;
}

// The axis, and those of its labels that fit.
std::string axis_below(const Plane& plane, const LogAxis& axis) {
  constexpr std::size_t kGap = 2;
  std::vector<std::string> line(static_cast<std::size_t>(plane.columns), plane.utf8 ? "─" : "-");
  std::string labels(plane.margin + 2 + line.size(), ' ');
  std::size_t free = 0;
  for (const auto& [share, label] : axis.ticks()) {
    const auto column = static_cast<std::size_t>(plane.column_of(share));
    line[column] = plane.utf8 ? "┬" : "+";
    const std::size_t centered = plane.margin + 2 + column - std::min(column, label.size() / 2);
    const std::size_t from = std::min(centered, labels.size() - label.size());
    if (from < free) continue;
    labels.replace(from, label.size(), label);
    free = from + label.size() + kGap;
  }
  if (plane.marked) line[static_cast<std::size_t>(*plane.marked)] = plane.utf8 ? "▲" : "^";
  std::string text = plane.left("", plane.utf8 ? "└" : "+");
  for (const std::string& character : line) text += character;
  labels.erase(labels.find_last_not_of(' ') + 1);
  return text + '\n' + labels + '\n';
}

}  // namespace

std::string LogPlot::draw(const PlotOptions& options) const {
  constexpr int kLeastWidth = 32, kLeastHeight = 4;
  if (options.width < kLeastWidth || options.height < kLeastHeight)
    throw ConfigError("plot: must be at least ", kLeastWidth, " columns by ", kLeastHeight, " lines, got ",
                      options.width, " by ", options.height);
  std::vector<double> at, values;
  for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (!std::isfinite(y[i])) continue;
    at.push_back(x[i]);
    values.push_back(y[i]);
  }
  if (values.size() < 2) return "(fewer than two points: nothing to plot)\n";

  const double low = std::ranges::min(values), largest = std::ranges::max(values);
  double high = std::min(largest, top.value_or(largest));
  if (!(high > low)) high = low + std::max(std::abs(low) * 0.1, 1e-9);  // the line is flat
  const std::array<std::string, 3> labels = labels_of(low, high);
  const std::size_t margin = std::max({labels[0].size(), labels[1].size(), labels[2].size()});

  const LogAxis axis(at.front(), at.back());
  Plane plane{.margin = margin,
              .columns = options.width - static_cast<int>(margin) - 2,
              .utf8 = options.utf8.value_or(environment_is_utf8())};
  if (mark && *mark >= at.front() && *mark <= at.back()) plane.marked = plane.column_of(axis.share(*mark));
  Canvas canvas(plane.columns, options.height, plane.utf8);
  for (double& one : at) one = axis.share(one);
  for (double& value : values) value = (value - low) / (high - low);
  draw_line(canvas, at, values);

  std::string text;
  if (!y_name.empty()) text += std::string(margin + 1, ' ') + y_name + '\n';
  text += rows(plane, canvas, options.height, labels) + axis_below(plane, axis);
  if (!x_name.empty()) {
    const int space = std::max(0, plane.columns - static_cast<int>(x_name.size())) / 2;
    text += std::string(margin + 2 + static_cast<std::size_t>(space), ' ') + x_name + '\n';
  }
  return text;
}

}  // namespace composer

#include "composer/loggers/progress_line.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "composer/core/error.h"
#include "composer/loggers/format.h"

namespace composer::loggers {
namespace {

constexpr int kShortestBar = 8, kLongestBar = 30;
constexpr int kCountsRank = 5, kElapsedRank = 6, kRateRank = 7;
constexpr const char *kPlain = "", *kBold = "\x1b[1m", *kDim = "\x1b[2m", *kGreen = "\x1b[32m", *kCyan = "\x1b[36m";

struct Piece {
  std::string text;
  const char* color = kPlain;
  int rank = 0;  // pieces with the largest rank are left out first
  std::string gap = "  ";
};

double share(const ProgressLine& line) {
  if (!line.total || *line.total <= 0) return 0;
  return std::clamp(static_cast<double>(line.done) / static_cast<double>(*line.total), 0.0, 1.0);
}

void add_metrics(std::vector<Piece>& pieces, const std::vector<ProgressLine::Metric>& metrics, int rank) {
  for (const auto& [name, value] : metrics) pieces.push_back({join(name, ' ', value), kPlain, rank++});
}

// All pieces from left to right, without the bar, which follows the title.
std::vector<Piece> pieces_of(const ProgressLine& line, bool with_percent) {
  std::vector<Piece> pieces{{line.title, kBold, 0, ""}};
  if (with_percent && line.total) {
    std::string percent = join(static_cast<int>(100 * share(line)), '%');
    pieces.push_back({std::string(4 - std::min<std::size_t>(4, percent.size()), ' ') + percent, kPlain, 2, " "});
  }
  if (!line.counts.empty()) pieces.push_back({line.counts, kPlain, kCountsRank});
  add_metrics(pieces, line.metrics, 10);
  if (!line.metrics.empty()) (pieces.end() - static_cast<std::ptrdiff_t>(line.metrics.size()))->rank = 3;
  for (const auto& [label, metrics] : line.evaluations) {
    pieces.push_back({label + ':', kCyan, 8});
    const std::size_t first = pieces.size();
    add_metrics(pieces, metrics, 20);
    if (pieces.size() > first) pieces[first].gap = " ";
  }
  if (!line.rate.empty()) pieces.push_back({line.rate, kDim, kRateRank});
  if (line.elapsed) pieces.push_back({format_duration(*line.elapsed), kDim, kElapsedRank});
  if (line.left) pieces.push_back({format_duration(std::ceil(*line.left)) + " left", kDim, 4});
  std::erase_if(pieces, [](const Piece& piece) { return piece.text.empty(); });
  return pieces;
}

int width_of(const std::vector<Piece>& pieces) {
  int width = 0;
  for (const Piece& piece : pieces) width += columns_of(piece.gap) + columns_of(piece.text);
  return width;
}

std::string bar_of(const ProgressLine& line, int width, bool utf8) {
  const double filled = share(line) * width;
  const int whole = std::min(static_cast<int>(filled), width);
  std::string bar;
  if (!utf8) {
    bar.assign(static_cast<std::size_t>(whole), '=');
    if (whole < width) bar += line.done > 0 ? '>' : ' ';
    bar.resize(static_cast<std::size_t>(width), ' ');
    return bar;
  }
  constexpr std::array kEighths{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  for (int i = 0; i < whole; ++i) bar += "█";
  if (whole < width) bar += kEighths.at(static_cast<std::size_t>((filled - whole) * 8));
  return bar + std::string(static_cast<std::size_t>(std::max(0, width - whole - 1)), ' ');
}

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
char lower(char c) { return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c; }

// A short form of a metric's name: "ce" for CrossEntropy, "acc" for Accuracy. Names that are not class names are
// unchanged.
std::string shorter(const std::string& name) {
  if (name.empty() || !is_upper(name.front())) return name;
  std::string initials;
  for (const char c : name)
    if (is_upper(c)) initials += lower(c);
  if (initials.size() > 1) return initials;
  std::string start = name.substr(0, 3);
  std::ranges::transform(start, start.begin(), lower);
  return start;
}

ProgressLine with_shorter_names(ProgressLine line) {
  const auto shorten = [](std::vector<ProgressLine::Metric>& metrics) {
    for (auto& [name, value] : metrics) name = shorter(name);
  };
  shorten(line.metrics);
  for (auto& [label, metrics] : line.evaluations) shorten(metrics);
  return line;
}

void add(std::string& text, std::string_view added, const char* color, bool colors) {
  const bool colored = colors && *color != '\0';
  if (colored) text += color;
  text += added;
  if (colored) text += "\x1b[0m";
}

}  // namespace

std::string draw_bar(const ProgressLine& line, const Terminal& terminal, int columns) {
  std::vector<Piece> pieces = pieces_of(line, /*with_percent=*/true);
  for (Piece& piece : pieces) piece.text = printable(piece.text, terminal.utf8);
  const int around_bar = line.total ? 3 : 0;  // a blank and the bar's two ends
  int bar = line.total ? kShortestBar : 0;
  while (pieces.size() > 1 && width_of(pieces) + around_bar + bar > columns)
    pieces.erase(std::ranges::max_element(pieces, {}, &Piece::rank));
  const int left_over = columns - width_of(pieces) - around_bar;
  bar = left_over < 1 ? 0 : std::min(left_over, kLongestBar);

  std::string text;
  for (const Piece& piece : pieces) {
    text += piece.gap;
    add(text, printable(piece.text, terminal.utf8, columns), piece.color, terminal.colors);
    if (&piece == &pieces.front() && line.total && bar > 0) {
      text += terminal.utf8 ? " │" : " [";
      add(text, bar_of(line, bar, terminal.utf8), line.evaluating ? kCyan : kGreen, terminal.colors);
      text += terminal.utf8 ? "│" : "]";
    }
  }
  return text;
}

std::string draw_text(const ProgressLine& line, const Terminal& terminal) {
  std::string text;
  const bool with_percent = !terminal.interactive && line.done != line.total;
  std::vector<Piece> pieces = pieces_of(line, with_percent);
  const auto give_way = [&] {
    for (const int rank : {kRateRank, kElapsedRank, kCountsRank})
      if (terminal.interactive && width_of(pieces) >= terminal.columns())
        std::erase_if(pieces, [rank](const Piece& piece) { return piece.rank == rank; });
  };
  give_way();
  if (terminal.interactive && width_of(pieces) >= terminal.columns()) {
    pieces = pieces_of(with_shorter_names(line), with_percent);
    give_way();
  }
  for (const Piece& piece : pieces) {
    text += piece.gap;
    add(text, printable(piece.text, terminal.utf8), piece.color, terminal.colors);
  }
  return text;
}

}  // namespace composer::loggers

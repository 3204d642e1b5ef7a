#include "composer/loggers/progress_screen.h"

#include <cmath>
#include <utility>

#include "composer/core/error.h"
#include "composer/loggers/format.h"
#include "composer/util/text.h"

namespace composer::loggers {
namespace {

constexpr double kRateWindow = 3;  // in seconds

// Moves to the beginning of the line, and clears the line.
constexpr const char* kRestart = "\r\x1b[K";

}  // namespace

ProgressScreen::ProgressScreen(TextStream stream, Terminal terminal, Seconds redraw_interval, Seconds line_interval)
    : stream_(std::move(stream)),
      terminal_(std::move(terminal)),
      moment_(redraw_interval.count()),
      interval_((terminal_.interactive ? redraw_interval : line_interval).count()) {
  if (terminal_.interactive) line_.emplace([this] { clear(); });
}

template <class Write>
void ProgressScreen::draw(const Write& write) const {
  line_ ? line_->draw(write) : write();
}

void ProgressScreen::show(const ProgressLine& line) {
  wait();
  if (!terminal_.interactive) return stream_.write(draw_text(line, terminal_) + '\n');
  // The last column stays empty: on some terminals, a cursor behind it would begin a new line.
  draw([&] {
    stream_.write(kRestart + draw_bar(line, terminal_, terminal_.columns() - 1));
    shown_ = true;
  });
}

void ProgressScreen::keep(const ProgressLine& line) {
  draw([&] { stream_.write((std::exchange(shown_, false) ? kRestart : "") + draw_text(line, terminal_) + '\n'); });
  crowded_until_ = now() + moment_;
}

void ProgressScreen::clear() {
  draw([&] {
    if (std::exchange(shown_, false)) stream_.write(kRestart);
  });
}

void ProgressScreen::leave() {
  draw([&] {
    if (std::exchange(shown_, false)) stream_.write("\n");
  });
}

void Rate::add(double seconds, double count) {
  if (!points_.empty() && (seconds <= points_.back().first || count < points_.back().second)) {
    if (seconds == points_.back().first) return;
    points_.clear();  // the count went back: an earlier checkpoint was loaded
  }
  points_.emplace_back(seconds, count);
  while (points_.size() > 2 && seconds - points_[1].first >= kRateWindow) points_.pop_front();
}

double Rate::per_second() const {
  if (points_.size() < 2) return 0;
  return (points_.back().second - points_.front().second) / (points_.back().first - points_.front().first);
}

std::string format_rate(double per_second, const char* unit) {
  if (!(per_second > 0) || std::isinf(per_second)) return "";
  if (per_second >= 9'999.5) return join(format_short(per_second), ' ', unit, "/s");
  return join(util::printed("%.*f", per_second < 10 ? 2 : per_second < 100 ? 1 : 0, per_second), ' ', unit, "/s");
}

}  // namespace composer::loggers

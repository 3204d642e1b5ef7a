#include "composer/cli/text.h"

#include <array>
#include <cmath>

#include <c10/util/Exception.h>

#include "composer/core/error.h"
#include "composer/core/listed.h"
#include "composer/util/text.h"
#include "composer/util/text_table.h"

namespace composer::cli {

std::string bytes_text(std::uint64_t number) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  auto scaled = static_cast<double>(number);
  std::size_t unit = 0;
  while (scaled >= 999.95 && unit + 1 < kUnits.size()) scaled /= 1000, ++unit;
  return util::printed(unit == 0 ? "%.0f %s" : "%.1f %s", scaled, kUnits[unit]);
}

std::string number_text(double number) { return util::printed("%.6g", number); }

std::string seconds_text(double seconds) {
  if (!(seconds >= 100)) return util::printed("%.1f s", seconds);
  const auto all = static_cast<std::int64_t>(seconds);
  if (all < 7200) return join(all / 60, " min ", all % 60, " s");
  return join(all / 3600, " h ", all / 60 % 60, " min");
}

std::string shape_text(const std::vector<std::int64_t>& shape) { return "[" + listed(shape) + "]"; }

std::string plural(std::int64_t number, const std::string& noun) {
  return util::grouped(number) + " " + noun + (number == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::string printable(std::string_view text) {
  std::string safe(text);
  for (char& c : safe)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return safe;
}

std::string one_line(const std::exception& error) {
  std::string text;
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error))
    text = torch->what_without_backtrace();
  else
    text = describe(error);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::string line;
  for (const char c : text)
    if (c != '\n')
      line += c;
    else
      line += "; ";
  return printable(line);
}

std::string colored(const Console& console, Color color, const std::string& text) {
  if (!console.colors) return text;
  constexpr std::array kCodes = {"1", "31", "32", "33"};
  return join("\x1b[", kCodes[static_cast<std::size_t>(color)], "m", text, "\x1b[0m");
}

}  // namespace composer::cli

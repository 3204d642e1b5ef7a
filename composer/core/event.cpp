#include "composer/core/event.h"

#include <algorithm>
#include <array>
#include <optional>

#include "composer/core/error.h"
#include "composer/core/old_names.h"
#include "composer/util/edit_distance.h"
#include "composer/util/letters.h"

namespace composer {
namespace {

enum class Kind : std::uint8_t { BEFORE, AFTER, NEITHER };

struct Row {
  std::string_view name, method;
  Kind kind;
};

#define COMPOSER_X(NAME, method, kind) Row{#NAME, #method, Kind::kind},
constexpr std::array<Row, kEventCount> kRows = {COMPOSER_EVENTS(COMPOSER_X)};
#undef COMPOSER_X

const Row& row(Event event) { return kRows.at(static_cast<std::size_t>(event)); }

// The event that a misspelled name in capitals most likely means.
std::optional<Event> closest_event(std::string_view name) {
  const auto* const nearest = util::nearest(name, kRows, &Row::name);
  if (nearest == kRows.end()) return std::nullopt;
  return static_cast<Event>(nearest - kRows.begin());
}

}  // namespace

std::string_view name(Event event) { return row(event).name; }
std::string_view to_string(Event event) { return row(event).method; }

std::string canonical_name(Event event) {
  std::string text(row(event).method);
  for (const std::string_view part : {"before_", "after_", "_start", "_end"})
    if (const auto at = text.find(part); at != std::string::npos) text.erase(at, part.size());
  return text;
}

Event parse_event(std::string_view text) {
  const std::string upper = util::upper(text);
  for (int i = 0; i < kEventCount; ++i)
    if (kRows.at(i).name == upper) return static_cast<Event>(i);
  std::string_view meant = known_name(NameKind::EVENT, text, [](std::string_view ours) { return !ours.empty(); });
  std::string elsewhere;
  if (meant.empty()) {
    elsewhere = explain_old_name(text);
    if (const auto event = closest_event(upper); event && elsewhere.empty()) meant = to_string(*event);
  }
  throw ConfigError("Event: there is no event \"", text, "\"; ",
                    meant.empty() ? std::string() : join("did you mean \"", meant, "\"? "),
                    "docs/reference/events.md lists the ", kEventCount, " there are", elsewhere);
}

bool is_before_event(Event event) { return row(event).kind == Kind::BEFORE; }
bool is_after_event(Event event) { return row(event).kind == Kind::AFTER; }
bool is_eval(Event event) { return row(event).method.starts_with("eval"); }
bool is_predict(Event event) { return row(event).method.starts_with("predict"); }
bool is_reversed(Event event) { return row(event).name.starts_with("AFTER_"); }

}  // namespace composer

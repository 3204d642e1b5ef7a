#include "composer/checkpoint/conflicts.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/name_format.h"
#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"
#include "composer/formats/unsupported.h"
#include "composer/util/counts.h"
#include "composer/util/pattern.h"

namespace composer::saving {

namespace fs = std::filesystem;

namespace {

struct Names {
  util::Pattern pattern;
  std::vector<const util::Count*> counts;  // counts of the groups; null: any number
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(".^$|()[]{}*+?\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Names names_of(const std::string& format, const std::string& run_name) {
  std::vector<const util::Count*> counts;
  std::string text;
  for (const util::NamePart& part : util::parts_of_name(format)) {
    if (!part.placeholder || util::is_known(part.name, /*with_time=*/false)) {
      text += escaped(part.placeholder ? format_name(part.text, run_name) : part.text);
      continue;
    }
    text += part.spec.empty() ? "([0-9.]+)" : "(.+)";
    counts.push_back(nullptr);
    if (!part.spec.empty() && std::string_view("xXob").find(part.spec.back()) != std::string_view::npos) continue;
    for (const util::Count& count : util::kCounts)
      if (count.in_names && part.name == count.name) counts.back() = &count;
  }
  return {.pattern = util::Pattern("the names of checkpoints", text), .counts = std::move(counts)};
}

// Parses the number, ignoring padding and separators.
std::int64_t number_in(std::string text) {
  std::erase_if(text, [](char c) { return c < '0' || c > '9'; });
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Counts within an epoch are not compared. A name without a count from the start of training is used repeatedly, so
// each such name may come.
bool is_later(const std::vector<std::string>& groups, const Names& names, const Timestamp& now) {
  bool has_total = false;
  for (std::size_t i = 0; i < names.counts.size(); ++i) {
    const util::Count* const count = names.counts[i];
    if (!count || !count->total) continue;
    has_total = true;
    if (number_in(groups[i]) > now.*count->field) return true;
  }
  return !has_total;
}

// Whether the path, or a folder above it, has the suffix of damaged checkpoints.
bool is_damaged(const fs::path& name) {
  return std::ranges::any_of(name, [](const fs::path& part) {
    const std::string text = part.string();
    const std::size_t at = text.rfind(kDamaged);
    return at != std::string::npos &&
           text.find_first_not_of("-0123456789", at + std::string_view(kDamaged).size()) == std::string::npos;
  });
}

}  // namespace

std::optional<Conflict> find_conflict(const fs::path& folder, const std::string& format, const std::string& run_name,
                                      const Timestamp& now, const std::string& run_id, FileSystem& files) {
  const Names names = names_of(format, run_name);
  for (const Below& below : walk(folder, files)) {
    const std::string name = below.path.lexically_relative(folder).string();
    const auto groups = is_damaged(name) ? std::nullopt : names.pattern.groups_in(name);
    if (!groups || !is_later(*groups, names, now)) continue;
    if (below.kind == Below::Kind::UNREADABLE)
      return Conflict{.path = below.path, .reason = "could not be read: permission denied", .foreign = false};
    if (below.kind == Below::Kind::CHECKPOINT) try {
        if (open_checkpoint(below.path, files).manifest.run_id == run_id) continue;
      } catch (const formats::UnsupportedError& error) {
        return Conflict{.path = below.path, .reason = join("could not be read: ", error.what()), .foreign = false};
      } catch (const CheckpointError& error) {
        return Conflict{
            .path = below.path, .reason = join("could not be read: ", error.what()), .foreign = false, .damaged = true};
      }
    return Conflict{.path = below.path, .reason = "was not written by this run"};
  }
  return std::nullopt;
}

bool is_name_of(const std::string& format, const std::string& run_name, const std::string& name) try {
  const Names names = names_of(format, run_name);
  const auto groups = names.pattern.groups_in(name);
  if (!groups) return false;
  Timestamp time;
  for (std::size_t i = 0; i < names.counts.size(); ++i)
    if (names.counts[i]) time.*names.counts[i]->field = number_in((*groups)[i]);
  return format_name(format, run_name, &time) == name;
} catch (const ConfigError&) {
  return false;  // the run's name cannot be formatted, which is reported when a fit begins
}

void check_format(const std::string& option, const std::string& format, bool with_time) {
  const Timestamp zero;
  for (const util::NamePart& part : util::parts_of_name(format, option))
    if (part.placeholder && !util::is_known(part.name, with_time))
      throw ConfigError(option, ": the placeholder ", part.text, " cannot be used here, in ", format);
  format_name(format, "x", with_time ? &zero : nullptr, option);  // throws if the format is invalid
}

}  // namespace composer::saving

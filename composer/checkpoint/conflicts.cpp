#include "composer/checkpoint/conflicts.h"

#include <charconv>
#include <regex>
#include <vector>

#include "composer/checkpoint/counts.h"
#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/name_format.h"
#include "composer/core/error.h"

namespace composer::saving {

namespace fs = std::filesystem;

namespace {

struct Pattern {
  std::regex names;
  std::vector<std::int64_t Timestamp::*> fields;  // of its groups; null: any number
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view(".^$|()[]{}*+?\\").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Pattern pattern_of(const std::string& format, const std::string& run_name) {
  Pattern pattern;
  std::string text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const std::size_t end = format[i] == '{' ? format.find('}', i) : std::string::npos;
    if (end == std::string::npos) {
      text += escaped(format.substr(i, 1));
      continue;
    }
    const std::string inside = format.substr(i + 1, end - i - 1), name = inside.substr(0, inside.find(':'));
    const std::string fixed = format_name("{" + inside + "}", run_name);
    if (fixed != "{" + inside + "}") {
      text += escaped(fixed);
    } else {
      text += "([0-9.]+)";
      pattern.fields.push_back(nullptr);
      for (const Count& count : kCounts)  // those within an epoch say nothing by themselves
        if (count.total && count.in_names && name == count.name) pattern.fields.back() = count.field;
    }
    i = end;
  }
  pattern.names = std::regex(text);
  return pattern;
}

bool is_later(const std::smatch& match, const Pattern& pattern, const Timestamp& now) {
  for (std::size_t i = 0; i < pattern.fields.size(); ++i) {
    if (!pattern.fields[i]) continue;
    const std::string text = match[i + 1];
    std::int64_t count = 0;
    std::from_chars(text.data(), text.data() + text.size(), count);
    if (count > now.*pattern.fields[i]) return true;
  }
  return false;
}

}  // namespace

std::optional<fs::path> find_conflict(const fs::path& folder, const std::string& format, const std::string& run_name,
                                      const Timestamp& now, const std::string& run_id) {
  const Pattern pattern = pattern_of(format, run_name);
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->is_symlink()) continue;
    const bool checkpoint = it->is_directory() && fs::exists(it->path() / Manifest::kFileName);
    if (checkpoint || it->path().filename().string().starts_with('.')) it.disable_recursion_pending();
    const std::string name = it->path().lexically_relative(folder).string();
    std::smatch match;
    if (std::regex_match(name, match, pattern.names) && is_later(match, pattern, now) && !is_of_run(it->path(), run_id))
      return it->path();
  }
  return std::nullopt;
}

void check_format(const char* option, const std::string& format, bool with_time) {
  const Timestamp zero;
  const std::string formatted = format_name(format, "x", with_time ? &zero : nullptr);
  const auto open = formatted.find('{');
  const auto close = formatted.find('}', open);
  if (open != std::string::npos && close != std::string::npos && format.find("{{") == std::string::npos)
    throw ConfigError(option, ": ", formatted.substr(open, close - open + 1),
                      " is no placeholder that is known here, in ", format);
}

}  // namespace composer::saving

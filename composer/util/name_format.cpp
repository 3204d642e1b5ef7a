#include "composer/util/name_format.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "composer/core/error.h"
#include "composer/util/counts.h"
#include "composer/util/format_spec.h"

namespace composer::util {
namespace {

std::optional<std::int64_t> count_of(std::string_view name, const Timestamp& t) {
  for (const Count& count : kCounts)
    if (count.in_names && name == count.name) return t.*count.field;
  return std::nullopt;
}

std::optional<std::int64_t> process_count(std::string_view name) {
  if (name == "rank" || name == "local_rank" || name == "node_rank") return 0;
  if (name == "world_size" || name == "local_world_size") return 1;
  return std::nullopt;
}

// As a part of a path: it may contain folders, but must stay below what comes before it.
std::string_view checked(std::string_view run_name) {
  const std::filesystem::path path = run_name;
  if (path.is_absolute() || std::ranges::any_of(path, [](const auto& part) { return part == ".." || part == "."; }))
    throw ConfigError("run_name: ", run_name,
                      " leaves the folder that it is part of; it must not start with / or contain .. or a part .");
  return run_name;
}

std::optional<Seconds> clock_of(std::string_view name, const Timestamp& t) {
  if (name == "total_wct") return t.total_wct;
  if (name == "epoch_wct") return t.epoch_wct;
  if (name == "batch_wct") return t.batch_wct;
  return std::nullopt;
}

// An unknown name is a text: itself in braces.
std::string value_of(const NamePart& part, std::string_view run_name, const Timestamp* time) {
  if (part.name == "run_name") return format_text(checked(run_name), part.spec);
  if (const auto count = process_count(part.name)) return format_count(*count, part.spec);
  if (time) {
    if (const auto count = count_of(part.name, *time)) return format_count(*count, part.spec);
    if (const auto clock = clock_of(part.name, *time)) return format_seconds(clock->count(), part.spec);
  }
  return format_text(join('{', part.name, '}'), part.spec);
}

}  // namespace

std::vector<NamePart> parts_of_name(std::string_view format, std::string_view owner) {
  std::vector<NamePart> parts;
  const auto text = [&](char c) {
    if (parts.empty() || parts.back().placeholder) parts.emplace_back();
    parts.back().text += c;
  };
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      text(c);
    } else if (i + 1 < format.size() && format[i + 1] == c) {
      text(c), ++i;
    } else if (c == '}') {
      throw ConfigError(owner, ": ", format, " has a } without a {");
    } else {
      const std::size_t end = format.find('}', i);
      if (end == std::string_view::npos) throw ConfigError(owner, ": ", format, " has a { without a }");
      const std::string_view inside = format.substr(i + 1, end - i - 1);
      const std::size_t colon = std::min(inside.find(':'), inside.size());
      parts.push_back({.placeholder = true,
                       .text = std::string(format.substr(i, end - i + 1)),
                       .name = std::string(inside.substr(0, colon)),
                       .spec = std::string(inside.substr(std::min(colon + 1, inside.size())))});
      i = end;
    }
  }
  return parts;
}

bool is_known(std::string_view name, bool with_time) {
  if (name == "run_name" || process_count(name)) return true;
  return with_time && (count_of(name, {}) || clock_of(name, {}));
}

std::string format_name(std::string_view format, std::string_view run_name, const Timestamp* time,
                        std::string_view owner) {
  std::string text;
  for (const NamePart& part : parts_of_name(format, owner)) {
    try {
      text += part.placeholder ? value_of(part, run_name, time) : part.text;
    } catch (const ConfigError& error) {
      throw ConfigError(owner, ": ", format, ": ", error.what());
    }
  }
  return text;
}

}  // namespace composer::util

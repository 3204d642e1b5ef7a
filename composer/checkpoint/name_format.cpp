#include "composer/checkpoint/name_format.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "composer/checkpoint/counts.h"
#include "composer/checkpoint/walk.h"
#include "composer/core/error.h"
#include "composer/formats/json_reader.h"

namespace composer::saving {
namespace {

std::string padded(std::int64_t number, std::string_view spec) {
  std::string text = std::to_string(number);
  if (spec.ends_with('d')) spec.remove_suffix(1);
  if (spec.empty()) return text;
  const char fill = spec.front() == '0' ? '0' : ' ';
  std::size_t width = 0;
  const auto read = std::from_chars(spec.data(), spec.data() + spec.size(), width);
  if (read.ec != std::errc() || read.ptr != spec.data() + spec.size() || width > 64)
    throw ConfigError("save_filename: the format :", spec, " is unknown; use e.g. {epoch:04}");
  if (text.size() < width) text.insert(0, width - text.size(), fill);
  return text;
}

// As Python prints a float: shortest, and with a point.
std::string seconds_text(Seconds seconds) {
  std::string text(32, '\0');
  const auto end = std::to_chars(text.data(), text.data() + text.size(), seconds.count());
  text.resize(static_cast<std::size_t>(end.ptr - text.data()));
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::optional<std::int64_t> count_of(std::string_view name, const Timestamp& t) {
  for (const Count& count : kCounts)
    if (count.in_names && name == count.name) return t.*count.field;
  return std::nullopt;
}

std::optional<std::string> value_of(std::string_view name, std::string_view spec, std::string_view run_name,
                                    const Timestamp* time) {
  if (name == "run_name" && spec.empty()) return std::string(run_name);
  if (name == "rank" || name == "local_rank" || name == "node_rank") return padded(0, spec);
  if (name == "world_size" || name == "local_world_size") return padded(1, spec);
  if (!time) return std::nullopt;
  if (const auto count = count_of(name, *time)) return padded(*count, spec);
  if (!spec.empty()) return std::nullopt;
  if (name == "total_wct") return seconds_text(time->total_wct);
  if (name == "epoch_wct") return seconds_text(time->epoch_wct);
  if (name == "batch_wct") return seconds_text(time->batch_wct);
  return std::nullopt;
}

}  // namespace

std::vector<NamePart> parts_of_name(std::string_view format) {
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
      throw ConfigError("save_filename: ", format, " has a } without a {");
    } else {
      const std::size_t end = format.find('}', i);
      if (end == std::string_view::npos) throw ConfigError("save_filename: ", format, " has a { without a }");
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

std::string format_name(std::string_view format, std::string_view run_name, const Timestamp* time) {
  std::string text;
  for (const NamePart& part : parts_of_name(format))
    text += part.placeholder ? value_of(part.name, part.spec, run_name, time).value_or(part.text) : part.text;
  return text;
}

void check_name(const std::string& name, const std::string& latest) {
  constexpr std::size_t kLongest = 255 - 4;  // bytes on common file systems, and a suffix while it is replaced
  const auto fail = [&](const std::string& what) {
    throw ConfigError("save_filename: the name ", formats::shown(name), ' ', what);
  };
  const std::filesystem::path path = name;
  if (name.empty()) fail("is empty");
  if (path.is_absolute()) fail("is an absolute path; it must lie below save_folder");
  for (const std::filesystem::path& part : path) {
    const std::string text = part.string();
    if (text == "..") fail("leaves save_folder");
    if (text.empty() || text == ".") fail("has an empty part");
    if (text.starts_with(kTemporary)) fail(join("begins with ", kTemporary, ", which is reserved for temporary files"));
    if (text.size() > kLongest)
      fail(join("has a part of ", text.size(), " bytes; at most ", kLongest, " are possible"));
    if (text.find('\0') != std::string::npos) fail("has a zero byte");
  }
  if (latest.empty()) return;
  const auto is_inside = [](const std::string& inner, const std::string& outer) {
    return inner == outer || inner.starts_with(outer + '/');
  };
  if (is_inside(name, latest) || is_inside(latest, name))
    fail("collides with the link save_latest_filename, " + formats::shown(latest) + "; change one of them");
}

}  // namespace composer::saving

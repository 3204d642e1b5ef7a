#include "composer/cli/same_run.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include <nlohmann/json.hpp>

#include "composer/cli/comparison.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/util/json.h"
#include "composer/util/text.h"

namespace composer::cli {

namespace fs = std::filesystem;

namespace {

using UnorderedJson = nlohmann::json;
using Names = std::set<std::string>;

constexpr std::size_t kMost = 8;  // number of differences in the report

// Keys of logs with times of a clock.
const std::vector<std::string> kClockKeys = {"time",         "time/train",   "time/val",
                                             "time/total",   "throughput/*", "*_per_sec*",
                                             "wall_clock/*", "*wct*",        "*remaining_estimate*"};

void tell(SameRun& result, const std::string& what) {
  if (result.differences.size() < kMost) result.differences.push_back(what);
}

Names names_of(const std::vector<fs::path>& paths, const fs::path& folder) {
  Names names;
  for (const fs::path& path : paths) names.insert(path.lexically_relative(folder).string());
  return names;
}

// Regular files below the folder, except those of checkpoints and temporary ones.
Names files_below(const fs::path& folder, const std::function<bool(const std::string&)>& wanted) {
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator it(folder), end; it != end; ++it) {
    if (it->is_directory() && (it->is_symlink() || it->path().filename().string().starts_with(".tmp-") ||
                               fs::exists(it->path() / saving::Manifest::kFileName)))
      it.disable_recursion_pending();
    else if (it->is_regular_file() && wanted(it->path().lexically_relative(folder).string()))
      files.push_back(it->path());
  }
  return names_of(files, folder);
}

std::string newest_of(const fs::path& folder) {
  const auto all = saving::list_checkpoints(folder);
  return all.empty() ? std::string() : all.back().path.lexically_relative(fs::canonical(folder)).string();
}

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  util::OutText text;
  text << file.rdbuf();
  if (!file) throw Error(path.string(), ": could not be read");
  return std::move(text).str();
}

constexpr std::string_view kCsvHeader = "step,epoch,batch,time,key,value";

bool is_csv(const std::string& name) { return name.ends_with(".csv"); }

// The logs of a JsonLinesLogger or a CsvLogger.
Names logs_below(const fs::path& folder) {
  return files_below(folder, [&](const std::string& name) {
    if (!is_csv(name)) return name.ends_with(".jsonl");
    std::ifstream file(folder / name, std::ios::binary);
    std::string line;
    return std::getline(file, line) && line == kCsvHeader;
  });
}

bool is_skipped(const std::string& key, const std::vector<std::string>& ignored) {
  return fits_any(key, kClockKeys) || fits_any(key, ignored);
}

std::string without_times(const std::string& json_line, const std::vector<std::string>& ignored) {
  UnorderedJson json = util::parse_json_or_discard<UnorderedJson>(json_line);
  if (!json.is_object()) return json_line;
  for (auto it = json.begin(); it != json.end();) it = is_skipped(it.key(), ignored) ? json.erase(it) : std::next(it);
  return json.dump(-1, ' ', false, UnorderedJson::error_handler_t::replace);
}

// The position after `count` commas outside of quotes, because a key may contain commas; npos: there are fewer.
std::size_t after_commas(std::string_view line, int count) {
  bool quoted = false;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '"') quoted = !quoted;
    if (line[at] == ',' && !quoted && --count == 0) return at + 1;
  }
  return std::string_view::npos;
}

std::string without_times_of_csv(const std::string& line, const std::vector<std::string>& ignored) {
  const std::size_t time = after_commas(line, 3), key = after_commas(line, 4), value = after_commas(line, 5);
  if (value == std::string::npos) return line;
  const std::string name = line.substr(key, value - 1 - key);
  return line.substr(0, time) + name + ',' + (is_skipped(name, ignored) ? "" : line.substr(value));
}

std::vector<std::string> lines_of(const fs::path& path, const std::vector<std::string>& ignored) {
  std::vector<std::string> lines;
  util::InText text(content_of(path));
  for (std::string line; std::getline(text, line);)
    lines.push_back(is_csv(path) ? without_times_of_csv(line, ignored) : without_times(line, ignored));
  return lines;
}

// 0: the line has no batch.
std::int64_t batch_in(const std::string& line, bool csv) {
  if (csv) {
    const std::size_t batch = after_commas(line, 2), end = after_commas(line, 3);
    std::int64_t count = 0;
    if (end != std::string::npos) std::from_chars(line.data() + batch, line.data() + end, count);
    return count;
  }
  const UnorderedJson json = util::parse_json_or_discard<UnorderedJson>(line);
  return json.is_object() && json.contains("batch") ? json["batch"].get<std::int64_t>() : 0;
}

// Calls both(name) for names that both have, and reports names that only one has.
void side_by_side(const Names& expected, const Names& got, const std::string& noun, SameRun& result,
                  const std::function<void(const std::string&)>& both) {
  for (const std::string& name : expected)
    if (got.contains(name))
      both(name);
    else
      tell(result, join(noun, " ", name, " is missing"));
  for (const std::string& name : got)
    if (!expected.contains(name)) tell(result, join(noun, " ", name, " is unexpected"));
}

void compare_contents(const fs::path& expected, const fs::path& got, const std::string& name,
                      const std::vector<std::string>& ignored, SameRun& result) {
  const Comparison comparison = compare(open_contents(expected), open_contents(got), ignored);
  result.tensors += comparison.compared;
  for (const auto& [what, how] : comparison.differences) tell(result, join(name, ": ", what, ": ", how));
}

void compare_logs(const fs::path& expected, const fs::path& got, const std::string& name,
                  const std::vector<std::string>& ignored, SameRun& result) {
  const auto a = lines_of(expected, ignored), b = lines_of(got, ignored);
  const auto [x, y] = std::ranges::mismatch(a, b);
  result.lines += static_cast<std::int64_t>(a.size());
  if (x == a.end() && y == b.end()) return;
  const auto text = [](const auto& lines, const auto& at) {
    return at == lines.end() ? std::string("(the end)") : at->substr(0, 200);
  };
  tell(result, join(name, ": line ", x - a.begin() + 1, " is ", text(b, y), " instead of ", text(a, x), "; ", b.size(),
                    " lines instead of ", a.size()));
}

}  // namespace

SameRun compare_runs(const fs::path& expected, const fs::path& got, const SameRunOptions& options) {
  SameRun result;
  std::vector<std::string> ignored = wall_clock_globs();
  ignored.insert(ignored.end(), options.ignored.begin(), options.ignored.end());
  if (options.asked_to_end) ignored.insert(ignored.end(), {"saver/*", "manifest/parent"});
  Names first = names_of(checkpoints_below(expected), expected), second = names_of(checkpoints_below(got), got);
  if (options.asked_to_end) {
    const std::string newest = newest_of(expected);
    std::erase_if(first, [&](const std::string& name) { return name != newest && !second.contains(name); });
    std::erase_if(second, [&](const std::string& name) { return !first.contains(name); });
  }
  // Compares logs first, because they show where a difference began.
  side_by_side(logs_below(expected), logs_below(got), "log", result, [&](const std::string& name) {
    compare_logs(expected / name, got / name, name, options.ignored, result);
  });
  side_by_side(first, second, "checkpoint", result, [&](const std::string& name) {
    ++result.checkpoints;
    compare_contents(expected / name, got / name, name, ignored, result);
  });
  const auto wanted = [&](const std::string& name) { return fits_any(name, options.files); };
  side_by_side(files_below(expected, wanted), files_below(got, wanted), "file", result, [&](const std::string& name) {
    ++result.files;
    if (name.ends_with(".safetensors") || name.ends_with(".pt"))
      compare_contents(expected / name, got / name, name, ignored, result);
    else if (content_of(expected / name) != content_of(got / name))
      tell(result, name + ": its bytes differ");
  });
  return result;
}

std::int64_t last_logged_batch(const fs::path& folder) {
  constexpr std::size_t kTail = 4096;  // enough for the end of a line
  std::int64_t last = 0;
  for (const std::string& name : logs_below(folder)) {
    std::string text = content_of(folder / name);
    text.erase(text.find_last_of('\n') + 1);  // drops an incomplete line
    if (text.size() > kTail) text.erase(0, text.find('\n', text.size() - kTail) + 1);
    util::InText lines(text);
    for (std::string line; std::getline(lines, line);) last = std::max(last, batch_in(line, is_csv(name)));
  }
  return last;
}

}  // namespace composer::cli

#include "composer/util/name_format.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/util/counts.h"
#include "composer/util/format_spec.h"

namespace composer::util {
namespace {

std::optional<std::int64_t> count_of(std::string_view name, const Timestamp& t) {
  for (const Count& count : kCounts)
    if (count.in_names && name == count.name) return t.*count.field;
  return std::nullopt;
}

// The ranks of one process among the processes that train together.
struct Ranks {
  std::int64_t rank = 0, world_size = 1;
  ProcessOnNode node{.local_rank = 0, .local_world_size = 1, .node_rank = 0};
};

std::mutex on_node_mutex;
ProcessOnNode on_node;  // guarded by the mutex above

Ranks ranks_of(const State& state) {
  Ranks ranks{.rank = state.rank, .world_size = state.world_size, .node = {}};
  const std::lock_guard lock(on_node_mutex);
  ranks.node = on_node;
  if (ranks.node.local_world_size == 0)
    ranks.node = {.local_rank = state.rank, .local_world_size = state.world_size, .node_rank = 0};
  return ranks;
}

std::optional<std::int64_t> process_count(std::string_view name, const Ranks& ranks) {
  if (name == "rank") return ranks.rank;
  if (name == "world_size") return ranks.world_size;
  if (name == "local_rank") return ranks.node.local_rank;
  if (name == "local_world_size") return ranks.node.local_world_size;
  if (name == "node_rank") return ranks.node.node_rank;
  return std::nullopt;
}

// Checks a run name that becomes a part of a path: it may contain folders, but must stay below its parent.
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

// Returns an unknown name unchanged, in its braces.
std::string value_of(const NamePart& part, std::string_view run_name, const Timestamp* time, const Ranks& ranks) {
  if (part.name == "run_name") return format_text(checked(run_name), part.spec);
  if (const auto count = process_count(part.name, ranks)) return format_count(*count, part.spec);
  if (time) {
    if (const auto count = count_of(part.name, *time)) return format_count(*count, part.spec);
    if (const auto clock = clock_of(part.name, *time)) return format_seconds(clock->count(), part.spec);
  }
  return format_text(join('{', part.name, '}'), part.spec);
}

std::string formatted(std::string_view format, std::string_view run_name, const Timestamp* time, std::string_view owner,
                      const Ranks& ranks) {
  std::string text;
  for (const NamePart& part : parts_of_name(format, owner)) {
    try {
      text += part.placeholder ? value_of(part, run_name, time, ranks) : part.text;
    } catch (const ConfigError& error) {
      throw ConfigError(owner, ": ", format, ": ", error.what());
    }
  }
  return text;
}

}  // namespace

bool has_time(std::string_view format) {
  return std::ranges::any_of(parts_of_name(format), [](const NamePart& part) {
    return part.placeholder && is_known(part.name, /*with_time=*/true) && !is_known(part.name, /*with_time=*/false);
  });
}

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
  if (name == "run_name" || process_count(name, {})) return true;
  return with_time && (count_of(name, {}) || clock_of(name, {}));
}

std::string format_name(std::string_view format, std::string_view run_name, const Timestamp* time,
                        std::string_view owner) {
  return formatted(format, run_name, time, owner, {});
}

std::string format_name(std::string_view format, const State& state, const Timestamp* time, std::string_view owner) {
  return formatted(format, state.run_name, time, owner, ranks_of(state));
}

void set_process_on_node(const ProcessOnNode& process) {
  const std::lock_guard lock(on_node_mutex);
  on_node = process;
}

}  // namespace composer::util

#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer {
struct State;
}

namespace composer::util {

// Replaces {run_name}, {rank}, {local_rank}, {world_size}, {local_world_size}, {node_rank} (0 and 1 if there is no
// world) and, with a timestamp, {epoch}, {batch}, {sample}, {token}, {batch_in_epoch}, {sample_in_epoch},
// {token_in_epoch}, {total_wct}, {epoch_wct}, {batch_wct}. Format specs are those of Python: {epoch:04}, {batch:>6}. {{
// and }} are braces, and unknown names stay as they are. Throws ConfigError that begins with `owner` for an unmatched
// brace and for an unknown format spec.
COMPOSER_EXPORT std::string format_name(std::string_view format, std::string_view run_name,
                                        const Timestamp* time = nullptr, std::string_view owner = "save_filename");

// As above, with the run name and the ranks of `state`, for files that every rank writes.
COMPOSER_EXPORT std::string format_name(std::string_view format, const State& state, const Timestamp* time,
                                        std::string_view owner = "save_filename");

// What the launcher says about this process, for the placeholders of one machine. If local_world_size is 0, all ranks
// count as ranks of one machine.
struct ProcessOnNode {
  std::int64_t local_rank = 0, local_world_size = 0, node_rank = 0;
};
COMPOSER_EXPORT void set_process_on_node(const ProcessOnNode& process);

// Whether format_name() replaces a placeholder of this name, with a timestamp or without one.
COMPOSER_EXPORT bool is_known(std::string_view name, bool with_time);

// Whether the format has a placeholder of time, so that names of different moments differ.
COMPOSER_EXPORT bool has_time(std::string_view format);

// A part of a format: text, or a placeholder {name:spec}.
struct NamePart {
  bool placeholder = false;
  std::string text;  // for text, {{ and }} are replaced by braces; for a placeholder, its source with its braces
  std::string name, spec;
};
// Throws ConfigError for an unmatched brace.
COMPOSER_EXPORT std::vector<NamePart> parts_of_name(std::string_view format, std::string_view owner = "save_filename");

}  // namespace composer::util

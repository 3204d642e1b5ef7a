#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/core/time.h"

namespace composer::saving {

// Replaces {run_name}, {rank}, {local_rank}, {world_size}, {local_world_size}, {node_rank} (one process: 0 and 1) and,
// with a timestamp, {epoch}, {batch}, {sample}, {token}, {batch_in_epoch}, {sample_in_epoch}, {token_in_epoch},
// {total_wct}, {epoch_wct}, {batch_wct}. {epoch:04} and {epoch:04d} pad with zeros; {{ and }} are braces; what is not
// known stays as it is. Throws ConfigError for a brace without its other.
COMPOSER_EXPORT std::string format_name(std::string_view format, std::string_view run_name,
                                        const Timestamp* time = nullptr);

// A part of a format: a text, or a placeholder {name:spec}.
struct NamePart {
  bool placeholder = false;
  std::string text;  // {{ and }} are braces in it; of a placeholder as it stands in the format, with its braces
  std::string name, spec;
};
// Throws ConfigError for a brace without its other.
std::vector<NamePart> parts_of_name(std::string_view format);

// Throws ConfigError for a name that a checkpoint in a save folder cannot have beside that link: one that leaves the
// folder, is reserved for temporary files, is too long for a file system, or is the link's.
COMPOSER_EXPORT void check_name(const std::string& name, const std::string& latest);

}  // namespace composer::saving

#pragma once
// The names that users look for because Composer's older documents or other trainers have them. Errors of unknown names
// use them, and scripts/old_names.py makes the tables of docs/reference/old-names.md from them. Internal.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace composer {

enum class NameKind : std::uint8_t { EVENT, OPTION, PLUGIN, OTHER };

struct OldName {
  std::string_view whose;  // "Lightning"
  NameKind kind;
  std::string_view name;
  std::string_view ours;  // empty: there is no such thing
  std::string_view note;  // what differs, or what to do instead; may be empty if `ours` is not
};

std::span<const OldName> old_names();

// Our name of what `name` is elsewhere, in upper or lower case, if it has this kind and `is_known` holds for it.
// Otherwise "".
template <class IsKnown>
std::string_view known_name(NameKind kind, std::string_view name, const IsKnown& is_known);

// The end of an error: ". Composer's "grad_accum" is device_train_microbatch_size here (docs/reference/old-names.md)",
// or
// "" for a name that no row has.
std::string explain_old_name(std::string_view name);

bool same_name(std::string_view a, std::string_view b);  // ignores case

template <class IsKnown>
std::string_view known_name(NameKind kind, std::string_view name, const IsKnown& is_known) {
  for (const OldName& row : old_names())
    if (row.kind == kind && same_name(row.name, name) && is_known(row.ours)) return row.ours;
  return {};
}

}  // namespace composer

#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "composer/data/text/split_rule.h"

namespace composer::data::detail {

enum class CharacterClass : std::uint8_t { OTHER, LETTER, NUMBER, SPACE };

struct Character {
  CharacterClass kind;
  std::uint8_t bytes;  // 1 to 4
};

// The class of the character that begins at this byte. A byte that begins no valid UTF-8 is one character of the class
// OTHER.
Character character_at(std::string_view text, std::size_t at);

// The end of the part that begins at `at`, which must be the beginning of a part and inside of the text. Tokens of a
// byte-pair encoding never cross the borders of parts.
std::size_t part_end(SplitRule rule, std::string_view text, std::size_t at);

// The last place at which the text may be divided without a change of its parts, whatever follows it; 0 if there is
// none.
std::size_t last_border(SplitRule rule, std::string_view text);

}  // namespace composer::data::detail

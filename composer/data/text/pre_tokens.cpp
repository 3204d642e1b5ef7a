#include "composer/data/text/pre_tokens.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "composer/data/text/unicode_ranges.h"
#include "composer/util/utf8.h"

namespace composer::data::detail {
namespace {

using enum CharacterClass;

constexpr std::uint32_t kSpaces[] = {0x85,   0xa0,   0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006,
                                     0x2007, 0x2008, 0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};

constexpr std::array<CharacterClass, 128> kAscii = [] {
  std::array<CharacterClass, 128> classes = {};
  for (char c = 'a'; c <= 'z'; ++c) classes[static_cast<std::size_t>(c)] = LETTER;
  for (char c = 'A'; c <= 'Z'; ++c) classes[static_cast<std::size_t>(c)] = LETTER;
  for (char c = '0'; c <= '9'; ++c) classes[static_cast<std::size_t>(c)] = NUMBER;
  for (const char c : {' ', '\t', '\n', '\v', '\f', '\r'}) classes[static_cast<std::size_t>(c)] = SPACE;
  return classes;
}();

// The class of each code point up to the last letter.
const std::vector<CharacterClass>& classes_of_points() {
  static const std::vector<CharacterClass> all = [] {
    const std::uint32_t end = std::max(std::prev(std::end(kLetters))->last, std::prev(std::end(kNumbers))->last) + 1;
    std::vector<CharacterClass> classes(end, OTHER);
    for (const auto [first, last] : kLetters) std::fill(&classes[first], &classes[last] + 1, LETTER);
    for (const auto [first, last] : kNumbers) std::fill(&classes[first], &classes[last] + 1, NUMBER);
    for (const std::uint32_t point : kSpaces) classes[point] = SPACE;
    return classes;
  }();
  return all;
}

Character wide_character(std::string_view text, std::size_t at) {
  const std::size_t length = util::utf8_length(text.substr(at, 4));
  if (length == 0) return {OTHER, 1};
  std::uint32_t point = static_cast<unsigned char>(text[at]) & (0xffU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) point = (point << 6) | (static_cast<unsigned char>(text[at + i]) & 0x3fU);
  static const std::vector<CharacterClass>& classes = classes_of_points();
  return {point < classes.size() ? classes[point] : OTHER, static_cast<std::uint8_t>(length)};
}

Character fast_character(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte < 128 ? Character{kAscii[byte], 1} : wide_character(text, at);
}

std::size_t end_of_run(std::string_view text, std::size_t at, CharacterClass kind) {
  while (at < text.size()) {
    const Character next = fast_character(text, at);
    if (next.kind != kind) break;
    at += next.bytes;
  }
  return at;
}

// The end of 's, 't, 're, 've, 'm, 'll or 'd; `at` if there is none. With `any_case`, also of 'S, and of 's with a long
// s, which is the small letter of S, too.
std::size_t end_of_contraction(std::string_view text, std::size_t at, bool any_case) {
  if (text[at] != '\'' || at + 1 == text.size()) return at;
  const auto letter = [&](std::size_t i) {
    if (i >= text.size()) return '\0';
    const char c = text[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return at + 3;
  if (any_case && text.substr(at + 1, 2) == "\xc5\xbf") return at + 3;
  return at;
}

struct Spaces {
  std::size_t end, last;  // `last`: where the last space begins
};

Spaces run_of_spaces(std::string_view text, std::size_t at) {
  Spaces run{at, at};
  while (run.end < text.size()) {
    const Character next = fast_character(text, run.end);
    if (next.kind != SPACE) break;
    run.last = run.end;
    run.end += next.bytes;
  }
  return run;
}

// Spaces before a word leave the last one to it.
std::size_t end_of_spaces(std::string_view text, std::size_t at, Spaces run) {
  return run.end == text.size() || run.last == at ? run.end : run.last;
}

// '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t gpt2_end(std::string_view text, std::size_t at) {
  if (const std::size_t end = end_of_contraction(text, at, false); end != at) return end;
  const std::size_t begin = at + (text[at] == ' ');
  if (begin < text.size())
    if (const Character first = fast_character(text, begin); first.kind != SPACE)
      return end_of_run(text, begin + first.bytes, first.kind);
  return end_of_spaces(text, at, run_of_spaces(text, at));
}

bool is_newline(char c) { return c == '\r' || c == '\n'; }

// '(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s
std::size_t cl100k_end(std::string_view text, std::size_t at) {
  if (const std::size_t end = end_of_contraction(text, at, true); end != at) return end;
  const Character first = fast_character(text, at);
  if (first.kind == LETTER) return end_of_run(text, at + first.bytes, LETTER);
  if (first.kind == NUMBER) {
    std::size_t end = at + first.bytes;
    for (int i = 1; i < 3 && end < text.size(); ++i) {
      const Character next = fast_character(text, end);
      if (next.kind != NUMBER) break;
      end += next.bytes;
    }
    return end;
  }
  if (const std::size_t next = at + first.bytes; next < text.size() && !is_newline(text[at]))
    if (const Character second = fast_character(text, next); second.kind == LETTER)
      return end_of_run(text, next + second.bytes, LETTER);
  const std::size_t begin = at + (text[at] == ' ');
  if (begin < text.size() && fast_character(text, begin).kind == OTHER) {
    std::size_t end = end_of_run(text, begin, OTHER);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  const Spaces run = run_of_spaces(text, at);
  if (run.end == text.size()) return run.end;
  const std::size_t newline = text.substr(at, run.end - at).find_last_of("\r\n");
  return newline != std::string_view::npos ? at + newline + 1 : end_of_spaces(text, at, run);
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) { return fast_character(text, at); }

std::size_t part_end(SplitRule rule, std::string_view text, std::size_t at) {
  return rule == SplitRule::GPT2 ? gpt2_end(text, at) : cl100k_end(text, at);
}

// No part has a space after anything else, but for the ends of lines that CL100K leaves with the signs before them.
std::size_t last_border(SplitRule rule, std::string_view text) {
  for (std::size_t at = text.size(); at-- > 1;) {
    const char c = text[at];
    if (c != ' ' && c != '\n') continue;
    std::size_t before = at - 1;
    while (before > 0 && at - before < 4 && (static_cast<unsigned char>(text[before]) & 0xc0) == 0x80) --before;
    const Character last = fast_character(text, before);
    if (before + last.bytes != at || last.kind == SPACE) continue;
    if (rule == SplitRule::GPT2 || c == ' ' || last.kind != OTHER) return at;
  }
  return 0;
}

}  // namespace composer::data::detail

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <optional>
#include <unordered_map>

#include "composer/core/error.h"
#include "composer/data/text/bpe.h"
#include "composer/formats/json_reader.h"
#include "composer/util/utf8.h"

namespace composer::data::detail {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

// In the files of GPT-2 each byte is written as a character that can be seen: those of Latin-1 that can be seen as
// themselves, and the others, in their order, as the characters from U+0100 on.
constexpr bool is_seen(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

struct ByteAlphabet {
  std::array<std::uint16_t, 256> point_of = {};
  std::array<std::int16_t, 512> byte_of = {};
};

constexpr ByteAlphabet kAlphabet = [] {
  ByteAlphabet all;
  all.byte_of.fill(-1);
  std::uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const auto point = is_seen(byte) ? static_cast<std::uint16_t>(byte) : next++;
    all.point_of[static_cast<std::size_t>(byte)] = point;
    all.byte_of[point] = static_cast<std::int16_t>(byte);
  }
  return all;
}();

// nullopt: it has a character that stands for no byte.
std::optional<std::string> bytes_written(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = util::utf8_length(text.substr(at));
    std::uint32_t point = static_cast<unsigned char>(text[at]);
    if (length == 2) {
      point = (point & 0x1fU) << 6 | (static_cast<unsigned char>(text[at + 1]) & 0x3fU);
    } else if (length != 1) {
      return std::nullopt;
    }
    if (point >= kAlphabet.byte_of.size() || kAlphabet.byte_of[point] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[point]);
    at += length;
  }
  return bytes;
}

std::string written(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const std::uint16_t point = kAlphabet.point_of[static_cast<unsigned char>(c)];
    if (point < 0x80) {
      text += static_cast<char>(point);
    } else {
      text += static_cast<char>(0xc0 | (point >> 6));
      text += static_cast<char>(0x80 | (point & 0x3f));
    }
  }
  return text;
}

// The lines of a text, without "\n" or "\r\n".
class TextLines {
 public:
  explicit TextLines(std::string_view text) : rest_(text) {}
  std::int64_t number() const { return number_; }  // of the last line, from 1
  bool next(std::string_view& line) {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line = rest_.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++number_;
    return true;
  }

 private:
  std::string_view rest_;
  std::int64_t number_ = 0;
};

// The tokens of a vocab.json, in which numbers may be left out, but not many.
std::vector<std::string> read_vocabulary(std::string_view text, std::string_view name, BpeParts& parts) {
  struct Entry {
    std::string bytes;
    std::int64_t number;
  };
  std::vector<Entry> entries;
  std::int64_t largest = -1;
  try {
    formats::JsonReader json(text, name);
    json.begin_object();
    for (std::string key; json.next_key(key);) {
      const std::int64_t number = json.integer();
      const std::optional<std::string> bytes = bytes_written(key);
      if (!bytes || bytes->empty())
        throw DataError(name, ": \"", formats::shown(key), "\" is no token of a byte-level encoding, in which each ",
                        "character stands for a byte");
      largest = std::max(largest, number);
      entries.push_back({*bytes, number});
      if (key == kEndOfText) parts.special[key] = number;
    }
    json.end();
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
  if (largest >= static_cast<std::int64_t>(4 * entries.size() + 1024))
    throw DataError(name, ": has ", entries.size(), " tokens, and one of the number ", largest, "; expected numbers ",
                    "from 0 to the number of tokens - 1");
  std::vector<std::string> tokens(static_cast<std::size_t>(largest + 1));
  for (Entry& entry : entries) {
    std::string& token = tokens[static_cast<std::size_t>(entry.number)];
    if (!token.empty())
      throw DataError(name, ": tokens \"", formats::shown(written(token)), "\" and \"",
                      formats::shown(written(entry.bytes)), "\" have the same number ", entry.number);
    token = std::move(entry.bytes);
  }
  return tokens;
}

// What save() has added to the first line of merges.txt.
constexpr std::string_view kVersion = "#version: 0.2", kSettings = " - composer ";

std::string settings_text(const BpeParts& parts) {
  const bool is_plain = parts.split == SplitRule::GPT2 &&
                        std::ranges::all_of(parts.special, [](const auto& item) { return item.first == kEndOfText; });
  if (is_plain) return "";  // as GPT-2's own files are
  std::string special;
  for (const auto& [token, number] : parts.special)
    special += join(special.empty() ? "" : ", ", formats::json_quoted(written(token)), ": ", number);
  for (const auto& [name, rule] : kSplitRules)
    if (rule == parts.split)
      return join(kSettings, R"({"split": )", formats::json_quoted(name), R"(, "special_tokens": {)", special, "}}");
  return "";
}

void read_settings(std::string_view text, std::string_view name, BpeParts& parts) {
  try {
    formats::JsonReader json(text, name);
    json.begin_object();
    for (std::string key; json.next_key(key);) {
      if (key == "split") {
        const std::string split = json.string();
        const auto* const rule =
            std::ranges::find_if(kSplitRules, [&](const auto& known) { return known.first == split; });
        if (rule == std::end(kSplitRules)) json.fail("the rule of \"split\" is unknown; gpt2 and cl100k are known");
        parts.split = rule->second;
      } else if (key == "special_tokens") {
        json.begin_object();
        for (std::string token; json.next_key(token);) {
          const std::int64_t number = json.integer();
          const std::optional<std::string> bytes = bytes_written(token);
          if (!bytes) json.fail("a special token has a character that stands for no byte");
          parts.special[*bytes] = number;
        }
      } else {
        json.fail("expected \"split\" or \"special_tokens\"");
      }
    }
    json.end();
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
}

// Adds the bytes. Returns false unless the text is base64 with padding.
bool from_base64(std::string_view text, std::string& bytes) {
  if (text.empty() || text.size() % 4 != 0) return false;
  const auto digit = [](char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  std::size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  const std::size_t digits = text.size() - padding;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    const int value = digit(text[i]);
    if (value < 0) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 == 0) continue;
    bytes += static_cast<char>(bits >> (6 - 2 * (i % 4)));
  }
  return true;
}

}  // namespace

std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  for (const bool seen : {true, false})
    for (int byte = 0; byte < 256; ++byte)
      if (is_seen(byte) == seen) tokens.emplace_back(1, static_cast<char>(byte));
  return tokens;
}

BpeParts read_gpt2_bpe(std::string_view vocabulary, std::string_view vocabulary_name, std::string_view merges,
                       std::string_view merges_name) {
  BpeParts parts;
  parts.tokens = read_vocabulary(vocabulary, vocabulary_name, parts);
  std::unordered_map<std::string_view, std::int32_t> numbers;
  for (std::size_t i = 0; i < parts.tokens.size(); ++i)
    if (!parts.tokens[i].empty()) numbers.emplace(parts.tokens[i], static_cast<std::int32_t>(i));
  std::unordered_map<std::uint64_t, std::int64_t> seen;  // the line of each pair
  std::string_view line;
  for (TextLines lines(merges); lines.next(line);) {
    if (lines.number() == 1)
      if (const std::size_t at = line.find(kSettings); line.starts_with(kVersion) && at != std::string_view::npos)
        read_settings(line.substr(at + kSettings.size()), merges_name, parts);
    if (line.empty() || line.starts_with("#version")) continue;
    const auto fail = [&](const auto&... what) {
      throw DataError(merges_name, ": line ", lines.number(), ": ", what..., ", found \"", formats::shown(line), '"');
    };
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
      fail("expected two tokens with a space between them");
    const std::optional<std::string> left = bytes_written(line.substr(0, space)),
                                     right = bytes_written(line.substr(space + 1));
    if (!left || !right || left->empty() || right->empty())
      fail("expected two tokens in which each character stands for a byte");
    const auto number = [&](const std::string& bytes) {
      const auto found = numbers.find(bytes);
      if (found == numbers.end())
        fail("\"", formats::shown(written(bytes)), "\" is not in ", vocabulary_name,
             "; do both files belong together?");
      return found->second;
    };
    const BpeParts::Merge merge{number(*left), number(*right), number(*left + *right)};
    const auto key = static_cast<std::uint64_t>(merge.left) << 32 | static_cast<std::uint32_t>(merge.right);
    if (const auto [first, is_new] = seen.emplace(key, lines.number()); !is_new)
      fail("is the same as line ", first->second);
    parts.merges.push_back(merge);
  }
  return parts;
}

BpeParts read_tiktoken_bpe(std::string_view text, std::string_view name) {
  BpeParts parts;
  parts.by_rank = true;
  std::string_view line;
  const auto most = static_cast<std::int64_t>(text.size());  // more than a file of this size has tokens
  for (TextLines lines(text); lines.next(line);) {
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    std::string bytes;
    std::int64_t number = -1;
    const std::string_view digits = space == std::string_view::npos ? "" : line.substr(space + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || number < 0 || number > most ||
        !from_base64(line.substr(0, space), bytes))
      throw DataError(name, ": line ", lines.number(), ": expected a token in base64, a space and its number, found \"",
                      formats::shown(line), '"');
    const auto at = static_cast<std::size_t>(number);
    if (at >= parts.tokens.size()) parts.tokens.resize(at + 1);
    if (!parts.tokens[at].empty())
      throw DataError(name, ": line ", lines.number(), ": another token has the number ", number, ", too");
    parts.tokens[at] = std::move(bytes);
  }
  return parts;
}

std::string vocabulary_json(const BpeParts& parts) {
  std::string text = "{";
  const auto add = [&text](std::string_view token, std::int64_t number) {
    text += join(text.size() > 1 ? ", " : "", formats::json_quoted(token), ": ", number);
  };
  for (std::size_t i = 0; i < parts.tokens.size(); ++i)
    if (!parts.tokens[i].empty()) add(written(parts.tokens[i]), static_cast<std::int64_t>(i));
  for (const auto& [token, number] : parts.special)
    if (const auto at = static_cast<std::size_t>(number); at >= parts.tokens.size() || parts.tokens[at].empty())
      add(written(token), number);
  return text + "}\n";
}

std::string merges_text(const BpeParts& parts) {
  if (parts.by_rank)
    throw ConfigError("BpeTokenizer: an encoding of tiktoken's ranks has no merges, so it cannot be saved in GPT-2's ",
                      "files");
  std::string text = join(kVersion, settings_text(parts), '\n');
  for (const auto [left, right, merged] : parts.merges)
    text += written(parts.tokens[static_cast<std::size_t>(left)]) + ' ' +
            written(parts.tokens[static_cast<std::size_t>(right)]) + '\n';
  return text;
}

}  // namespace composer::data::detail

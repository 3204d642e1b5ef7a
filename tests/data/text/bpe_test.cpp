// Byte-pair encoding: the rules that divide text, merging, the files.
#include "composer/data/text/bpe.h"

#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <random>

#include <nlohmann/json.hpp>

#include "composer/core/error.h"
#include "composer/data/text/pre_tokens.h"
#include "composer/util/json.h"
#include "tests/support/doctest.h"
#include "tests/support/places.h"

namespace composer::bpe_test {
namespace {

using data::SplitRule;
using data::detail::Bpe;
using data::detail::BpeParts;
using Tokens = std::vector<std::int64_t>;

std::vector<std::string> parts_of(SplitRule rule, std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = data::detail::part_end(rule, text, at);
    REQUIRE(end > at);
    parts.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return parts;
}

// Text of words that occur again, with signs, numbers and letters of other alphabets.
std::string some_text(int words, unsigned seed) {
  const std::vector<std::string> all{"the",    "they're", "Lord", "tokens", "naïve", "Привет", "2048", "don't",
                                     "日本語", "...",     "a--b", "\n\n",   "\t",    "x+y=z",  "I'LL", "tokenizer"};
  std::mt19937 random(seed);
  std::string text;
  for (int i = 0; i < words; ++i) text += all[random() % all.size()] + (random() % 8 == 0 ? "  " : " ");
  return text;
}

Tokens encoded(const Bpe& bpe, std::string_view text, bool finds_special = false) {
  Tokens tokens;
  bpe.encode(text, tokens, finds_special);
  return tokens;
}

// The definition: of all pairs that can be merged the first one of the least rank, until there is none.
Tokens merged_slowly(const BpeParts& parts, std::string_view part) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<int, std::int64_t>> ranks;
  for (int i = 0; i < static_cast<int>(parts.merges.size()); ++i)
    ranks[{parts.merges[static_cast<std::size_t>(i)].left, parts.merges[static_cast<std::size_t>(i)].right}] = {
        i, parts.merges[static_cast<std::size_t>(i)].merged};
  Tokens tokens;
  for (const char c : part)
    for (std::size_t i = 0; i < parts.tokens.size(); ++i)
      if (parts.tokens[i] == std::string(1, c)) tokens.push_back(static_cast<std::int64_t>(i));
  for (;;) {
    std::size_t best = tokens.size();
    int rank = std::numeric_limits<int>::max();
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      if (const auto found = ranks.find({tokens[i], tokens[i + 1]});
          found != ranks.end() && found->second.first < rank) {
        rank = found->second.first;
        best = i;
      }
    if (best == tokens.size()) return tokens;
    tokens[best] = ranks[{tokens[best], tokens[best + 1]}].second;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

const BpeParts& trained() {
  static const BpeParts parts = data::detail::train_bpe(some_text(4000, 1), 420, 2, SplitRule::GPT2);
  return parts;
}

}  // namespace

TEST_CASE("GPT-2's rule divides text into words with their space, numbers, signs and spaces") {
  using List = std::vector<std::string>;
  const std::vector<std::pair<std::string, List>> rows{
      {"Hello world", {"Hello", " world"}},
      {"they're DON'T", {"they", "'re", " DON", "'", "T"}},
      {"a  b", {"a", " ", " b"}},
      {"a \n b", {"a", " \n", " b"}},
      {"a\n\nb", {"a", "\n", "\n", "b"}},
      {"a   ", {"a", "   "}},
      {"x1y22", {"x", "1", "y", "22"}},
      {" --!?'s", {" --!?'", "s"}},
      {"été 日本", {"été", " 日本"}},
      {"a\xc2\xa0"
       "b",
       {"a", "\xc2\xa0", "b"}},
      {"½ ²", {"½", " ²"}},
      {"\xff\xfe"
       "a",
       {"\xff\xfe", "a"}},
      {"'", {"'"}},
      {"'l", {"'", "l"}},
  };
  for (const auto& [text, parts] : rows) CHECK(parts_of(SplitRule::GPT2, text) == parts);
}

TEST_CASE("The rule of cl100k divides numbers by three digits and takes one sign to a word") {
  using List = std::vector<std::string>;
  const std::vector<std::pair<std::string, List>> rows{
      {"they'RE", {"they", "'RE"}},     {"(word)", {"(word", ")"}},           {"1234567", {"123", "456", "7"}},
      {"a;\n\nb", {"a", ";\n\n", "b"}}, {"a \n  b", {"a", " \n", " ", " b"}}, {"\nx", {"\n", "x"}},
      {"x\t\ty", {"x", "\t", "\ty"}},   {"it'\xc5\xbf", {"it", "'\xc5\xbf"}}, {"a  \n", {"a", "  \n"}},
  };
  for (const auto& [text, parts] : rows) CHECK(parts_of(SplitRule::CL100K, text) == parts);
}

TEST_CASE("Text that is divided at a border has the parts of the whole") {
  std::mt19937 random(3);
  const std::vector<std::string> pieces{"a", "B", " ", " ",  "\n",   "\r",       "1", "'",
                                        "s", ".", "é", "日", "\xff", "\xc2\xa0", "。"};
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (unsigned n = random() % 14; n > 0; --n) text += pieces[random() % pieces.size()];
    std::string more;
    for (unsigned n = random() % 6; n > 0; --n) more += pieces[random() % pieces.size()];
    for (const SplitRule rule : {SplitRule::GPT2, SplitRule::CL100K}) {
      const std::size_t border = data::detail::last_border(rule, text);
      REQUIRE(border <= text.size());
      if (border == 0) continue;
      std::vector<std::string> parts = parts_of(rule, text.substr(0, border));
      for (const std::string& part : parts_of(rule, text.substr(border) + more)) parts.push_back(part);
      CAPTURE(text);
      CAPTURE(more);
      CHECK(parts == parts_of(rule, text + more));
    }
  }
}

TEST_CASE("Tokens are those of merging by the definition, in short words and long ones") {
  const Bpe bpe(trained(), "trained");
  const std::string text = some_text(300, 2);
  Tokens slow;
  for (const std::string& part : parts_of(SplitRule::GPT2, text))
    for (const std::int64_t token : merged_slowly(trained(), part)) slow.push_back(token);
  CHECK(encoded(bpe, text) == slow);
  std::mt19937 random(4);
  for (const int letters : {1, 2, 17, 127, 128, 129, 130, 600}) {
    std::string word;
    for (int i = 0; i < letters; ++i) word += "theoknrzdabLI"[random() % 13];
    CHECK(encoded(bpe, word) == merged_slowly(trained(), word));
  }
}

TEST_CASE("Every text of bytes is decoded to itself") {
  const Bpe bpe(trained(), "trained");
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (unsigned n = random() % 60; n > 0; --n) text += static_cast<char>(random() % (i % 2 == 0 ? 256 : 128));
    std::string back;
    bpe.decode(encoded(bpe, text), back);
    CHECK(back == text);
  }
}

TEST_CASE("A word of a million letters is encoded in a moment") {
  const Bpe bpe(trained(), "trained");
  const Tokens tokens = encoded(bpe, std::string(1'000'000, 't'));
  std::string back;
  bpe.decode(tokens, back);
  CHECK(back.size() == 1'000'000);
}

TEST_CASE("The two files of GPT-2 are written and read, and tiktoken's ranks give the same tokens") {
  const BpeParts& parts = trained();
  const Bpe bpe(parts, "trained");
  const std::string vocabulary = data::detail::vocabulary_json(parts), merges = data::detail::merges_text(parts);
  const Bpe again(data::detail::read_gpt2_bpe(vocabulary, "vocab.json", merges, "merges.txt"), "vocab.json");
  const std::string text = some_text(500, 6);
  CHECK(encoded(again, text) == encoded(bpe, text));
  // A trained encoding has numbers in the order of its merges, as tiktoken expects.
  std::string ranks;
  const char* const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < parts.tokens.size(); ++i) {
    const std::string& token = parts.tokens[i];
    for (std::size_t at = 0; at < token.size(); at += 3) {
      std::uint32_t bits = 0;
      for (std::size_t j = 0; j < 3; ++j)
        bits = bits << 8 | (at + j < token.size() ? static_cast<unsigned char>(token[at + j]) : 0);
      for (std::size_t j = 0; j < 4; ++j) ranks += at + j > token.size() ? '=' : digits[bits >> (18 - 6 * j) & 63];
    }
    ranks += " " + std::to_string(i) + "\n";
  }
  const Bpe by_rank(data::detail::read_tiktoken_bpe(ranks, "ranks"), "ranks");
  CHECK(by_rank.parts().tokens == parts.tokens);
  CHECK(encoded(by_rank, text) == encoded(bpe, text));
}

TEST_CASE("Training merges the most frequent pair first") {
  const BpeParts parts = data::detail::train_bpe("aab aab aab xy xy", 260, 2, SplitRule::GPT2);
  const auto name = [&](std::int32_t token) { return parts.tokens[static_cast<std::size_t>(token)]; };
  std::vector<std::string> merged;
  for (const auto& merge : parts.merges) merged.push_back(name(merge.merged));
  CHECK(merged == std::vector<std::string>{"aa", "aab", "xy", " aab"});
  CHECK(data::detail::train_bpe("abcd", 300, 2, SplitRule::GPT2).merges.empty());
}

TEST_CASE("Special tokens of a text are found if that is asked for, the longest first") {
  BpeParts parts = trained();
  const auto first = static_cast<std::int64_t>(parts.tokens.size());
  parts.special = {{"<|end|>", first}, {"<|end|><|end|>", first + 7}};
  const Bpe bpe(parts, "special");
  CHECK(bpe.size() == first + 8);
  Tokens expected = encoded(bpe, "the Lord");
  expected.push_back(first + 7);
  expected.push_back(first);
  for (const std::int64_t token : encoded(bpe, " x")) expected.push_back(token);
  const std::string text = "the Lord<|end|><|end|><|end|> x";
  CHECK(encoded(bpe, text, true) == expected);
  CHECK(encoded(bpe, text) != expected);
  for (const bool finds : {true, false}) {
    std::string back;
    bpe.decode(encoded(bpe, text, finds), back);
    CHECK(back == text);
  }
}

// tests/data/text/tiktoken_golden.py recorded them.
TEST_CASE("Tokens are those of tiktoken, for text of many alphabets") {
  std::ifstream file(test::repository() / "tests/data/text/tiktoken.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto golden = util::parse_json<nlohmann::json>(text);
  for (const auto& [name, rule] : {std::pair("gpt2", SplitRule::GPT2), std::pair("cl100k", SplitRule::CL100K)}) {
    BpeParts parts = data::detail::read_gpt2_bpe(golden["vocabulary"].get<std::string>(), "vocab.json",
                                                 golden["merges"].get<std::string>(), "merges.txt");
    parts.split = rule;
    const Bpe bpe(parts, "golden");
    std::size_t at = 0;
    for (const auto& tokens : golden[name]) {
      const auto line = golden["texts"][at++].get<std::string>();
      CAPTURE(line);
      CHECK(encoded(bpe, line) == tokens.get<Tokens>());
    }
    CHECK(at == golden["texts"].size());
  }
}

TEST_CASE("Damaged vocabularies and merges are refused with file, place and what was found") {
  const std::string vocabulary = data::detail::vocabulary_json(trained()),
                    merges = data::detail::merges_text(trained());
  const auto changed = [](std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
  };
  const auto refused = [](const std::string& v, const std::string& m, const std::string& what) {
    CAPTURE(what);
    try {
      const Bpe bpe(data::detail::read_gpt2_bpe(v, "vocab.json", m, "merges.txt"), "vocab.json");
      FAIL_CHECK("nothing was thrown");
    } catch (const DataError& error) {
      CHECK_MESSAGE(std::string(error.what()).find(what) != std::string::npos, error.what());
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  };
  refused("", merges, "vocab.json");
  refused("[]", merges, "vocab.json");
  refused("{", merges, "vocab.json");
  refused(vocabulary + "x", merges, "vocab.json");
  refused(vocabulary.substr(0, vocabulary.size() / 2), merges, "vocab.json");
  refused("{}", merges, "is not in vocab.json");
  refused("{}", "", "has no token for byte 0");
  refused(changed(vocabulary, "\"!\": 0", "\"!\": -1"), merges, "vocab.json");
  refused(changed(vocabulary, "\"!\": 0", "\"!\": 1.5"), merges, "vocab.json");
  refused(changed(vocabulary, "\"!\": 0", "\"!\": \"0\""), merges, "vocab.json");
  refused(changed(vocabulary, "\"!\": 0", "\"!\": 1"), merges, "have the same number 1");
  refused(changed(vocabulary, "\"!\": 0", "\"!\": 9223372036854775807"), merges,
          "one of the number 9223372036854775807");
  refused(changed(vocabulary, "\"!\": 0", "\"!\": 99999999999999999999"), merges, "vocab.json");
  refused(changed(vocabulary, "\"!\": 0", "\"a b\": 0"), merges, "\"a b\" is no token of a byte-level encoding");
  refused(changed(vocabulary, "\"!\": 0", "\"\": 0"), merges, "is no token of a byte-level encoding");
  refused(changed(vocabulary, "\"!\": 0", "\"日\": 0"), merges, "is no token of a byte-level encoding");
  refused(changed(vocabulary, "\"!\": 0, ", ""), merges, "has no token for byte 33");
  refused(changed(vocabulary, "\"!\": 0", "\"" + std::string(2000, '!') + "\": 0"), merges, "2000 bytes, and 1024");
  refused(vocabulary, "#version: 0.2\na\n", "merges.txt: line 2: expected two tokens with a space");
  refused(vocabulary, "a b c\n", "merges.txt: line 1: expected two tokens with a space");
  refused(vocabulary, "a \n", "merges.txt: line 1: expected two tokens in which");
  refused(vocabulary, " \n", "merges.txt: line 1: expected two tokens in which");
  refused(vocabulary, "日 a\n", "each character stands for a byte");
  refused(vocabulary, "\xff a\n", "each character stands for a byte");
  refused(vocabulary, "Q Q\n", "\"QQ\" is not in vocab.json; do both files belong together?");
  refused(vocabulary, "QQ Q\n", "\"QQ\" is not in vocab.json");
  const std::size_t first = merges.find('\n') + 1;
  refused(vocabulary, merges + merges.substr(first, merges.find('\n', first) + 1 - first), "is the same as line 2");
}

TEST_CASE("Damaged files of tiktoken are refused with file and line") {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    const char* const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bytes += std::string{digits[i >> 2], digits[i << 4 & 48], '=', '='} + " " + std::to_string(i) + "\n";
  }
  CHECK(Bpe(data::detail::read_tiktoken_bpe(bytes, "ranks"), "ranks").size() == 256);
  const std::vector<std::pair<std::string, const char*>> rows{
      {"", "has no token for byte 0"},
      {bytes + "YWI=\n", "line 257: expected a token in base64, a space and its number, found \"YWI=\""},
      {bytes + "YWI= \n", "line 257"},
      {bytes + "YWI= x\n", "line 257"},
      {bytes + "YWI= 256x\n", "line 257"},
      {bytes + "YWI= -1\n", "line 257"},
      {bytes + "YWI= 999999999999\n", "line 257"},
      {bytes + "YWI= 99999999999999999999\n", "line 257"},
      {bytes + "YW 256\n", "line 257"},
      {bytes + "Y*I= 256\n", "line 257"},
      {bytes + "==== 256\n", "line 257"},
      {bytes + " 256\n", "line 257"},
      {bytes + "YWI= 255\n", "line 257: another token has the number 255"},
      {bytes + "/w== 256\n", "tokens 255 and 256 have the same bytes"},
      {bytes.substr(0, bytes.size() - 9), "has no token for byte 255"},
  };
  for (const auto& [text, what] : rows) {
    CAPTURE(what);
    CHECK_THROWS_WITH_AS(Bpe(data::detail::read_tiktoken_bpe(text, "ranks"), "ranks"), doctest::Contains(what),
                         DataError);
  }
}

TEST_CASE("Encodings that contradict themselves are refused") {
  const auto refused = [](const std::function<void(BpeParts&)>& change, const char* what) {
    BpeParts parts = trained();
    change(parts);
    CHECK_THROWS_WITH_AS(Bpe(std::move(parts), "state"), doctest::Contains(what), DataError);
  };
  refused([](BpeParts& p) { p.merges[0].merged = 3; }, "merge 0 is of tokens that are not there");
  refused([](BpeParts& p) { p.merges[0].left = -1; }, "merge 0");
  refused([](BpeParts& p) { p.merges[1].right = 1 << 30; }, "merge 1");
  refused([](BpeParts& p) { p.merges.push_back(p.merges[0]); }, "is there twice");
  refused([](BpeParts& p) { p.tokens.push_back(p.tokens[300]); }, "have the same bytes");
  refused([](BpeParts& p) { p.special["<s>"] = 5; }, "which another token has");
  refused([](BpeParts& p) { p.special["<s>"] = -5; }, "must have a number from 0");
  refused([](BpeParts& p) { p.special[""] = 999; }, "has no text");
  refused([](BpeParts& p) { p.special = {{"<s>", 999}, {"<t>", 999}}; }, "have the same number 999");
  const Bpe bpe(trained(), "trained");
  std::string text;
  CHECK_THROWS_WITH_AS(bpe.decode(Tokens{-1}, text), doctest::Contains("no token has the number -1"), DataError);
  CHECK_THROWS_WITH_AS(bpe.decode(Tokens{99999}, text), doctest::Contains("no token has the number 99999"), DataError);
}

}  // namespace composer::bpe_test

#include "composer/data/text/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <random>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/text/bpe_tokenizer.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"

namespace composer::tokenizer_test {
namespace {

using data::BpeTokenizer, data::ByteTokenizer, data::CharTokenizer, data::Tokenizer, data::Tokens;
using List = std::vector<std::int64_t>;

std::string long_text(int words) {
  std::mt19937 random(1);
  std::string text;
  for (int i = 0; i < words; ++i) {
    for (unsigned n = 1 + random() % 9; n > 0; --n) text += static_cast<char>('a' + random() % 26);
    text += random() % 12 == 0 ? "\n" : random() % 30 == 0 ? " été " : " ";
  }
  return text;
}

BpeTokenizer trained() { return BpeTokenizer::train(long_text(3000), {.size = 400}); }

List list_of(const at::Tensor& tokens) {
  return {tokens.const_data_ptr<std::int64_t>(), tokens.const_data_ptr<std::int64_t>() + tokens.numel()};
}

std::vector<std::shared_ptr<Tokenizer>> all() {
  return {std::make_shared<ByteTokenizer>(), std::make_shared<CharTokenizer>(long_text(20000)),
          std::make_shared<BpeTokenizer>(trained())};
}

}  // namespace

TEST_CASE("Each tokenizer decodes what it encodes, and gives numbers below its size") {
  const std::string text = long_text(500);
  for (const auto& tokenizer : all()) {
    CAPTURE(tokenizer->name());
    const List tokens = tokenizer->encode(text);
    CHECK(tokenizer->decode(tokens) == text);
    for (const std::int64_t token : tokens) CHECK((token >= 0 && token < tokenizer->size()));
    CHECK(tokenizer->encode("").empty());
    CHECK(tokenizer->decode({}).empty());
  }
}

TEST_CASE("A copy of a tokenizer of characters encodes when the first one is gone") {
  auto first = std::make_unique<CharTokenizer>("aé日");
  const CharTokenizer copy = *first;
  CharTokenizer assigned("xyz");
  assigned = *first;
  first.reset();
  CHECK(copy.encode("日éa日") == List{2, 1, 0, 2});
  CHECK(assigned.encode("日éa日") == List{2, 1, 0, 2});
}

TEST_CASE("Training goes on where words repeat that are longer than a token may be") {
  const std::string line(1025, '='), text = line + " x " + line;
  const BpeTokenizer tokenizer = BpeTokenizer::train(text, {.size = 300});
  CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  std::size_t longest = 0;
  for (const std::int64_t token : tokenizer.encode(text))
    longest = std::max(longest, tokenizer.decode(List{token}).size());
  CHECK(longest <= 1024);
  CHECK(longest > 500);
}

TEST_CASE("A character that cannot be encoded is told with its byte in the whole text") {
  const CharTokenizer letters("abé");
  const std::string text(700'000, 'a');
  CHECK_THROWS_WITH_AS(letters.encode_long(text + "x" + text), doctest::Contains("\"x\" at byte 700000 is not in"),
                       DataError);
  CHECK_THROWS_WITH_AS(letters.encode_long(text + "\xff"), doctest::Contains("byte 700000 of the text is not UTF-8"),
                       DataError);
}

TEST_CASE("A long text has the same tokens on several threads") {
  const std::string text = long_text(200000);  // more than a megabyte
  for (const auto& tokenizer : all()) CHECK(list_of(tokenizer->encode_long(text)) == tokenizer->encode(text));
  const std::string one_word(1'000'000, 'a');
  CHECK(list_of(trained().encode_long(one_word)) == trained().encode(one_word));
}

TEST_CASE("A tokenizer that was saved is loaded with its vocabulary, by the name that was saved") {
  const std::string text = long_text(300);
  for (const auto& tokenizer : all()) {
    CAPTURE(tokenizer->name());
    Tokens saved(tokenizer, 7, 3), loaded;
    StateDict state;
    StateVisitor saving = StateVisitor::saving(state);
    saved.visit_state(saving);
    StateVisitor loading = StateVisitor::loading(state, "state");
    loaded.visit_state(loading);
    CHECK(loaded.name() == "tokens");
    CHECK(loaded.tokenizer().name() == tokenizer->name());
    CHECK(loaded.tokenizer().size() == tokenizer->size());
    CHECK(loaded.tokenizer().encode(text) == tokenizer->encode(text));
    const Batch raw = data::text_batch({"ab c", "", "abcdefghijkl"});
    CHECK(loaded.apply(raw)["input_ids"].equal(saved.apply(raw)["input_ids"]));
  }
}

TEST_CASE("A saved vocabulary that was damaged is refused") {
  const auto state_of = [] {
    StateDict state;
    StateVisitor saving = StateVisitor::saving(state);
    trained().visit_state(saving);
    return state;
  };
  const auto refused = [](const StateDict& state) {
    BpeTokenizer loaded;
    StateVisitor loading = StateVisitor::loading(state, "state");
    CHECK_THROWS_AS(loaded.visit_state(loading), Error);
  };
  const auto refused_as_checkpoint = [](Tokenizer& loaded, const StateDict& state) {
    StateVisitor loading = StateVisitor::loading(state, "state");
    CHECK_THROWS_AS(loaded.visit_state(loading), CheckpointError);
  };
  for (const char* name : {"bytes", "lengths", "merges", "split", "special"}) {
    StateDict state = state_of();
    state.erase(name);
    refused(state);
  }
  const std::vector<std::pair<const char*, StateValue>> rows{
      {"bytes", {at::zeros({3}, at::kByte)}},
      {"bytes", {at::zeros({3000})}},
      {"lengths", {at::full({400}, -1, at::kInt)}},
      {"lengths", {at::ones({300}, at::kLong)}},
      {"merges", {at::full({30}, 7, at::kInt)}},
      {"merges", {at::full({30}, -7, at::kInt)}},
      {"merges", {at::zeros({1}, at::kInt)}},
      {"lengths", {at::ones({300}, at::kInt)}},
      {"split", {std::int64_t{9}}},
  };
  for (const auto& [name, value] : rows) {
    StateDict state = state_of();
    state[name] = value;
    BpeTokenizer loaded;
    refused_as_checkpoint(loaded, state);
  }
  for (const auto& [characters, unknown] :
       {std::pair<std::string, std::string>("a\xff", ""), {"", ""}, {"abc", "ab"}}) {
    StateDict state;
    state["characters"] = StateValue(characters);
    state["unknown"] = StateValue(unknown);
    CharTokenizer loaded;
    refused_as_checkpoint(loaded, state);
  }
  StateDict other;
  other["tokenizer"] = StateValue(std::string("words"));
  other["max_length"] = StateValue(std::int64_t{0});
  other["pad"] = StateValue(std::int64_t{0});
  Tokens tokens;
  StateVisitor loading = StateVisitor::loading(other, "state");
  CHECK_THROWS_WITH_AS(tokens.visit_state(loading), doctest::Contains("there is no tokenizer \"words\""),
                       CheckpointError);
}

TEST_CASE("Texts become padded tokens with their mask") {
  const Tokens tokens(std::make_shared<ByteTokenizer>(), 4, 9);
  Batch raw = data::text_batch({"ab", std::string("x\0y", 3), "abcdef", ""});
  raw.set("target", at::arange(4));
  const Batch made = tokens.apply(raw);
  CHECK(made.size() == 3);
  CHECK(made["target"].equal(at::arange(4)));
  CHECK(list_of(made["input_ids"]) == List{'a', 'b', 9, 9, 'x', 0, 'y', 9, 'a', 'b', 'c', 'd', 9, 9, 9, 9});
  CHECK(list_of(made["attention_mask"]) == List{1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0, 0});
  raw.set("text_length", at::full({4}, 99, at::kLong));
  CHECK_THROWS_WITH_AS(tokens.apply(raw), doctest::Contains("has a length of 99, and there are 6 bytes"), DataError);
  raw.set("text", at::zeros({4}));
  CHECK_THROWS_WITH_AS(tokens.apply(raw), doctest::Contains("as text_batch() makes them"), DataError);
}

TEST_CASE("Characters are numbered by their code points, and unknown ones are told or replaced") {
  const CharTokenizer letters("cabé日a");
  CHECK(letters.size() == 5);
  CHECK(letters.encode("abcé日") == List{0, 1, 2, 3, 4});
  CHECK_THROWS_WITH_AS(letters.encode("abx"),
                       "CharTokenizer: \"x\" at byte 2 is not in the vocabulary of 5 characters; fit it on all of the "
                       "text, or set unknown",
                       DataError);
  CHECK_THROWS_WITH_AS(letters.encode("a\xff"), doctest::Contains("byte 1 of the text is not UTF-8"), DataError);
  CHECK_THROWS_WITH_AS(letters.decode(List{5}), "CharTokenizer: tokens are from 0 to 4, got 5", DataError);
  const CharTokenizer with_unknown("abc", {.unknown = "\ufffd"});
  CHECK(with_unknown.decode(with_unknown.encode("abxc")) == "ab\ufffdc");
  CHECK_THROWS_WITH_AS(CharTokenizer("a", {.unknown = "ab"}), doctest::Contains("unknown must be one character"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(CharTokenizer(""), doctest::Contains("has no characters"), DataError);
  CHECK_THROWS_WITH_AS(CharTokenizer("a\x80"), doctest::Contains("byte 1 of the text is not UTF-8"), DataError);
  CHECK_THROWS_WITH_AS(ByteTokenizer().decode(List{256}), doctest::Contains("from 0 to 255, got 256"), DataError);
}

TEST_CASE("A trained encoding is saved in GPT-2's files and read again, with its special token") {
  const test::Folder folder;
  const BpeTokenizer tokenizer = trained();
  CHECK(tokenizer.size() == 400);
  CHECK(tokenizer.token("<|endoftext|>") == 399);
  tokenizer.save(folder.path());
  const BpeTokenizer read(folder / "vocab.json", folder / "merges.txt", {.special_in_text = true});
  const std::string text = long_text(100);
  CHECK(read.encode(text) == tokenizer.encode(text));
  CHECK(read.size() == 400);
  CHECK(read.encode("a<|endoftext|>") == List{read.token("a"), 399});
  CHECK(tokenizer.encode("<|endoftext|>").size() > 1);
  CHECK(read.end_of_text() == 399);
  CHECK_FALSE(ByteTokenizer().end_of_text());
  CHECK_THROWS_WITH_AS(read.token("no such"), doctest::Contains("there is no token \"no such\""), ConfigError);
  CHECK_THROWS_WITH_AS(BpeTokenizer(folder / "none.json", folder / "merges.txt"),
                       doctest::Contains("none.json: No such file"), DataError);
  CHECK_THROWS_WITH_AS(BpeTokenizer(folder.path(), folder / "merges.txt"), doctest::Contains("not a regular file"),
                       DataError);
  CHECK_THROWS_WITH_AS(BpeTokenizer::train("a", {.size = 100}), doctest::Contains("size must be from 256"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(BpeTokenizer::train("a", {.size = 256}), doctest::Contains("at least 256 + the 1 special"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(BpeTokenizer().encode("a"), doctest::Contains("has no vocabulary"), ConfigError);
  CHECK_THROWS_WITH_AS(Tokens(nullptr), doctest::Contains("the tokenizer is null"), ConfigError);
}

TEST_CASE("A saved encoding keeps its rule of dividing text and its special tokens, and GPT-2's stays as it was") {
  const test::Folder folder;
  const std::string text = long_text(1000) + " 1234567 123456 1234567 they'RE  x";
  const auto tokenizer = BpeTokenizer::train(
      text,
      {.size = 500, .split = data::SplitRule::CL100K, .special_tokens = {"<|endoftext|>", "<|user|>", "<| \"é\"\n|>"}});
  tokenizer.save(folder / "own");
  const BpeTokenizer read(folder / "own/vocab.json", folder / "own/merges.txt", {.special_in_text = true});
  CHECK(read.encode(text) == tokenizer.encode(text));
  for (const char* special : {"<|endoftext|>", "<|user|>", "<| \"é\"\n|>"}) {
    CAPTURE(special);
    CHECK(read.token(special) == tokenizer.token(special));
    CHECK(read.encode(special) == List{tokenizer.token(special)});
  }
  CHECK(read.size() == tokenizer.size());
  read.save(folder / "again");
  const BpeTokenizer again(folder / "again/vocab.json", folder / "again/merges.txt");
  CHECK(again.encode(text) == tokenizer.encode(text));

  trained().save(folder / "plain");
  std::ifstream merges(folder / "plain/merges.txt");
  std::string line;
  CHECK(std::getline(merges, line));
  CHECK(line == "#version: 0.2");
  for (const auto& [settings, error] : {std::pair(R"({"split": "none"})", "the rule of \"split\" is unknown"),
                                        {R"({"special_tokens": {"日": 3}})", "stands for no byte"},
                                        {R"({"lower": 1})", "expected \"split\" or \"special_tokens\""},
                                        {R"({"split": )", "merges.txt"},
                                        {R"({"special_tokens": {"x": 300}})", "which another token has"}}) {
    CAPTURE(settings);
    test::write_text(folder / "merges.txt", std::string("#version: 0.2 - composer ") + settings + "\n");
    CHECK_THROWS_WITH_AS(BpeTokenizer(folder / "plain/vocab.json", folder / "merges.txt"), doctest::Contains(error),
                         DataError);
  }
}

}  // namespace composer::tokenizer_test

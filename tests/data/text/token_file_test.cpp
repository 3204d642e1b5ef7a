#include "composer/data/text/token_file.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/for_rank.h"
#include "composer/data/text/bpe_tokenizer.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"

namespace composer::token_file_test {
namespace {

using data::TokenFile, data::TokenWindowOptions, data::TokenWriter, data::token_windows, data::write_tokens;
using test::numbers_of;
using List = std::vector<std::int64_t>;

List squares(std::int64_t count, std::int64_t limit) {
  List list;
  for (std::int64_t i = 0; i < count; ++i) list.push_back(i * i % limit);
  return list;
}

std::filesystem::path written(const std::filesystem::path& path, const List& tokens,
                              at::ScalarType type = at::kUInt16) {
  TokenWriter writer(path, type);
  writer.write(tokens);
  writer.commit();
  return path;
}

// Token i is i, so that a window tells where it is.
std::filesystem::path counted(const test::Folder& folder, std::int64_t count) {
  List list;
  for (std::int64_t i = 0; i < count; ++i) list.push_back(i);
  return written(folder / "counted", list);
}

std::vector<std::vector<Batch>> epochs(Loader& loader, std::int64_t count) {
  std::vector<std::vector<Batch>> all;
  for (std::int64_t epoch = 0; epoch < count; ++epoch) {
    loader.seek(epoch, 0);
    auto& batches = all.emplace_back();
    while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  }
  return all;
}

bool same(const Batch& a, const Batch& b) {
  return a["input_ids"].equal(b["input_ids"]) && a["target"].equal(b["target"]);
}

}  // namespace

TEST_CASE("Tokens of every dtype are read as they were written, from one file and from several") {
  const test::Folder folder;
  for (const at::ScalarType type : {at::kUInt16, at::kUInt32, at::kInt, at::kLong}) {
    const List all = squares(1000, type == at::kUInt16 ? 65536 : 2'000'000'000);
    const auto path = written(folder / "tokens", all, type);
    const TokenFile file(path, {.dtype = type});
    CHECK(file.size() == 1000);
    CHECK(numbers_of(file.tensor()) == all);
    const auto first = written(folder / "first", {all.begin(), all.begin() + 300}, type);
    const auto none = written(folder / "none", {}, type);
    const auto rest = written(folder / "rest", {all.begin() + 300, all.end()}, type);
    const TokenFile joined({first, none, rest, none}, {.dtype = type});
    CHECK(numbers_of(joined.tensor()) == all);
    List some(10);
    joined.read(295, some);
    CHECK(some == List(all.begin() + 295, all.begin() + 305));
    CHECK_THROWS_WITH_AS(joined.read(991, some), doctest::Contains("cannot read 10 tokens at 991; there are 1000"),
                         DataError);
    CHECK(numbers_of(joined.part(0.2, 0.35).tensor()) == List(all.begin() + 200, all.begin() + 350));
    CHECK(numbers_of(joined.part(0.5, 1).part(0.5, 1).tensor()) == List(all.begin() + 750, all.end()));
  }
}

TEST_CASE("Random windows are anywhere, with the tokens that follow them, and differ between epochs") {
  const test::Folder folder;
  const TokenFile file(counted(folder, 200));
  const auto loader = token_windows(file, {.batch_size = 16, .length = 9, .samples = 2000, .seed = 1});
  CHECK(loader->num_batches() == 125);
  std::set<std::int64_t> starts;
  const auto two = epochs(*loader, 2);
  for (const Batch& batch : two[0]) {
    CHECK(batch["target"].equal(batch["input_ids"] + 1));
    CHECK((batch["input_ids"] - batch["input_ids"].narrow(1, 0, 1)).equal(at::arange(9).expand({16, 9})));
    for (const std::int64_t start : numbers_of(batch["input_ids"].select(1, 0))) starts.insert(start);
  }
  CHECK(starts.size() == 191);  // each place from which 9 tokens and the next one follow
  CHECK(*starts.rbegin() == 190);
  CHECK_FALSE(same(two[0][0], two[1][0]));
  CHECK(token_windows(file, {.batch_size = 4, .length = 9})->num_batches() == 6);  // 22 windows have room side by side
}

TEST_CASE("Consecutive windows are each token once, and with a stride they overlap") {
  const test::Folder folder;
  const TokenFile file(counted(folder, 100));
  const auto starts = [&](TokenWindowOptions options) {
    options.random = false;
    List list;
    const auto all = epochs(*token_windows(file, options), 1);
    for (const Batch& batch : all[0])
      for (const std::int64_t start : numbers_of(batch["input_ids"].select(1, 0))) list.push_back(start);
    return list;
  };
  CHECK(starts({.batch_size = 2, .length = 20, .shuffle = false}) == List{0, 20, 40, 60});  // 80 has no next token
  CHECK(starts({.batch_size = 2, .length = 33, .shuffle = false}) == List{0, 33, 66});
  CHECK(starts({.batch_size = 3, .length = 20, .stride = 30, .shuffle = false}) == List{0, 30, 60});
  CHECK(starts({.batch_size = 3, .length = 99, .shuffle = false}) == List{0});
  List shuffled = starts({.batch_size = 7, .length = 4, .seed = 3});
  CHECK_FALSE(std::ranges::is_sorted(shuffled));
  std::ranges::sort(shuffled);
  List expected;
  for (std::int64_t i = 0; i < 96; i += 4) expected.push_back(i);
  CHECK(shuffled == expected);
}

TEST_CASE(
    "Windows of a run that was stopped anywhere go on as if it was not, made ahead or not, on one rank and on "
    "several") {
  const test::Folder folder;
  const TokenFile file({counted(folder, 150), written(folder / "more", squares(90, 997))});
  for (const bool random : {true, false})
    for (const std::int64_t prefetch : {0, 3}) {
      const auto make = [&] {
        return token_windows(file, {.batch_size = 5, .length = 8, .random = random, .seed = 4, .prefetch = prefetch});
      };
      const auto whole = epochs(*make(), 2);
      const auto plain = epochs(*token_windows(file, {.batch_size = 5, .length = 8, .random = random, .seed = 4}), 2);
      for (std::int64_t epoch = 0; epoch < 2; ++epoch)
        for (std::size_t from = 0; from <= whole[0].size(); ++from) {
          const auto loader = make();
          loader->seek(epoch, static_cast<std::int64_t>(from));
          for (std::size_t b = from; b < whole[0].size(); ++b) {
            const auto batch = loader->next();
            REQUIRE(batch);
            CHECK(same(*batch, whole[static_cast<std::size_t>(epoch)][b]));
            CHECK(same(*batch, plain[static_cast<std::size_t>(epoch)][b]));
          }
          CHECK_FALSE(loader->next());
        }
      for (std::int64_t rank = 0; rank < 3; ++rank) {
        const auto loader = data::for_rank({.dataloader = make()}, rank, 3).dataloader;
        loader->seek(1, 2);
        const auto [begin, end] = std::pair(rank == 0 ? 0 : rank * 2, rank == 2 ? 5 : rank * 2 + 2);
        const auto batch = loader->next();
        CHECK(batch->at("input_ids").equal(whole[1][2]["input_ids"].slice(0, begin, end)));
      }
    }
}

TEST_CASE("Large batches are the same on several threads") {
  const test::Folder folder;
  const TokenFile file(written(folder / "tokens", squares(60000, 50000)));
  const auto all = file.tensor();
  const auto loader =
      token_windows(file, {.batch_size = 64, .length = 2048, .random = false, .stride = 700, .shuffle = false});
  const auto batch = loader->next();
  for (std::int64_t i = 0; i < 64; ++i) {
    CHECK(batch->at("input_ids")[i].equal(all.narrow(0, i * 700, 2048)));
    CHECK(batch->at("target")[i].equal(all.narrow(0, i * 700 + 1, 2048)));
  }
}

TEST_CASE("Texts are encoded into a file of tokens as they are in memory, whatever their size") {
  const test::Folder folder;
  std::string text;
  for (int i = 0; text.size() < 9'000'000; ++i) text += "word" + std::to_string(i % 977) + (i % 13 == 0 ? "\n" : " ");
  const auto big = test::write_text(folder / "big.txt", text), small = test::write_text(folder / "small.txt", "a b");
  const auto none = test::write_text(folder / "none.txt", "");
  const auto tokenizer = data::BpeTokenizer::train(std::string_view(text).substr(0, 20000), {.size = 500});
  const std::int64_t end = tokenizer.token("<|endoftext|>");
  const std::int64_t count = write_tokens(folder / "tokens", tokenizer, {big, none, small}, {.end_of_text = end});
  List expected = tokenizer.encode(text);
  expected.push_back(end);
  expected.push_back(end);
  for (const std::int64_t token : tokenizer.encode("a b")) expected.push_back(token);
  expected.push_back(end);
  CHECK(count == std::ssize(expected));
  CHECK(numbers_of(TokenFile(folder / "tokens").tensor()) == expected);
}

TEST_CASE("A character of a file that cannot be encoded is told with its byte in the file") {
  const test::Folder folder;
  const auto file = test::write_text(folder / "big.txt", std::string(9'000'000, 'a') + "x" + std::string(100, 'a'));
  const std::string error =
      test::error_of([&] { write_tokens(folder / "tokens", data::CharTokenizer("ab"), {file}, {}); });
  CAPTURE(error);
  CHECK(error.find("big.txt") != std::string::npos);
  CHECK(error.find("\"x\" at byte 9000000 is not in the vocabulary") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(folder / "tokens"));
}

TEST_CASE("A file of tokens that is not finished does not appear, and an old one stays") {
  const test::Folder folder;
  const auto path = written(folder / "tokens", {1, 2, 3});
  {
    TokenWriter writer(path);
    writer.write(List{9});
  }
  CHECK(numbers_of(TokenFile(path).tensor()) == List{1, 2, 3});
  const data::CharTokenizer letters("ab ");
  const auto good = test::write_text(folder / "good", "ab ba"), bad = test::write_text(folder / "bad", "ab c");
  CHECK_THROWS_WITH_AS(write_tokens(path, letters, {good, bad}), doctest::Contains("\"c\" at byte 3"), DataError);
  CHECK_THROWS_WITH_AS(write_tokens(path, letters, {good, bad}), doctest::Contains(bad.c_str()), DataError);
  CHECK_THROWS_WITH_AS(write_tokens(path, letters, {folder / "missing"}), doctest::Contains("No such file"), DataError);
  CHECK(numbers_of(TokenFile(path).tensor()) == List{1, 2, 3});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("Files that are no tokens of this kind are refused with file and place") {
  const test::Folder folder;
  const auto path = folder / "tokens";
  CHECK_THROWS_WITH_AS(TokenFile{path}, doctest::Contains("No such file"), DataError);
  CHECK_THROWS_WITH_AS(TokenFile{folder.path()}, doctest::Contains("not a regular file"), DataError);
  CHECK_THROWS_WITH_AS(TokenFile(std::vector<std::filesystem::path>()), "TokenFile: no file is named", ConfigError);
  test::write_text(path, "");
  CHECK_THROWS_WITH_AS(TokenFile{path}, doctest::Contains("tokens: has no tokens"), DataError);
  test::write_text(path, "abc");
  CHECK_THROWS_WITH_AS(TokenFile{path}, doctest::Contains("has 3 bytes, which is no whole number of tokens of 2 bytes"),
                       DataError);
  CHECK_THROWS_WITH_AS(TokenFile(path, {.dtype = at::kFloat}), doctest::Contains("dtype must be at::kUInt16"),
                       ConfigError);
  written(path, {1, 2, 300, 4});
  CHECK_THROWS_WITH_AS(
      TokenFile(path, {.vocabulary = 300}).tensor(),
      doctest::Contains("tokens: token 2 is 300, and the vocabulary has 300 tokens; is the dtype right"), DataError);
  CHECK(TokenFile(path, {.vocabulary = 301}).tensor().numel() == 4);
  written(path, squares(40, 100));
  const auto loader = token_windows(TokenFile(path, {.vocabulary = 90}), {.batch_size = 4, .length = 8});
  CHECK_THROWS_WITH_AS(while (loader->next()){}, doctest::Contains("and the vocabulary has 90 tokens"), DataError);
  std::ofstream(path, std::ios::binary) << std::string(16, '\xff');
  CHECK_THROWS_WITH_AS(TokenFile(path, {.dtype = at::kLong}).tensor(), doctest::Contains("token 0 is -1"), DataError);
  CHECK_THROWS_WITH_AS(TokenFile(path, {.dtype = at::kInt}).tensor(), doctest::Contains("token 0 is -1"), DataError);
  // A file that is cut off while it is in use is an error of the batch.
  written(path, squares(4000, 100));
  const TokenFile cut(path);
  std::filesystem::resize_file(path, 10);
  CHECK_THROWS_WITH_AS(cut.tensor(), doctest::Contains("ends at byte 10, but had 8000 bytes when opened"), DataError);
}

TEST_CASE("A file of more than 4 GiB is read at its end") {
  const test::Folder folder;
  const auto path = written(folder / "tokens", {1, 2, 3});
  constexpr std::uintmax_t kBytes = (std::uintmax_t{1} << 32) + 2048;
  std::filesystem::resize_file(path, kBytes - 4);  // of zeros, which take no room on the disk
  std::ofstream(path, std::ios::binary | std::ios::app).write("\x05\x00\x07\x00", 4);
  const TokenFile file(path);
  CHECK(file.size() == static_cast<std::int64_t>(kBytes / 2));
  List last(3);
  file.read(file.size() - 3, last);
  CHECK(last == List{0, 5, 7});
  const auto loader =
      token_windows(file.part(0.5, 1), {.batch_size = 2, .length = 1023, .random = false, .shuffle = false});
  loader->seek(0, *loader->num_batches() - 1);
  CHECK(loader->next()->at("input_ids").sum().item<std::int64_t>() <= 12);
}

TEST_CASE("Options of tokens that cannot be are refused") {
  const test::Folder folder;
  const TokenFile file(counted(folder, 20));
  const auto refused = [&](const TokenWindowOptions& options, const char* what) {
    CHECK_THROWS_WITH_AS(token_windows(file, options), doctest::Contains(what), Error);
  };
  refused({.length = 4}, "token_windows: batch_size must be >= 1, got 0");
  refused({.batch_size = 4}, "length must be from 1");
  refused({.batch_size = 4, .length = 20}, "a window of 20 tokens and the next one do not fit into 20 tokens");
  refused({.batch_size = 4, .length = 4, .stride = 2}, "set random = false");
  refused({.batch_size = 4, .length = 4, .random = false, .samples = 2}, "samples is of random windows");
  refused({.batch_size = 4, .length = 4, .random = false, .stride = -1}, "stride must be >= 0");
  CHECK_THROWS_WITH_AS(file.part(0.5, 0.5), doctest::Contains("0 <= from < to <= 1"), ConfigError);
  CHECK_THROWS_WITH_AS(file.part(-1, 0.5), doctest::Contains("got -1 and 0.5"), ConfigError);
  TokenWriter writer(folder / "out");
  CHECK_THROWS_WITH_AS(writer.write(List{1, 65536}),
                       doctest::Contains("token 1 is 65536, and dtype UInt16 holds 0 to 65535"), DataError);
  CHECK_THROWS_WITH_AS(writer.write(List{-1}), doctest::Contains("token 0 is -1"), DataError);
  CHECK_THROWS_WITH_AS(TokenWriter(folder / "out", at::kDouble), doctest::Contains("dtype must be"), ConfigError);
  CHECK_THROWS_WITH_AS(write_tokens(folder / "out", data::ByteTokenizer(), {}, {.end_of_text = 256}),
                       doctest::Contains("end_of_text must be from 0 to 255, got 256"), ConfigError);
}

}  // namespace composer::token_file_test

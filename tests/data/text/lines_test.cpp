#include "composer/data/text/lines.h"

#include <algorithm>
#include <filesystem>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/data/for_rank.h"
#include "composer/data/text/pad_collate.h"
#include "tests/data/support.h"
#include "tests/support/doctest.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"

namespace composer::lines_test {
namespace {

using data::Lines, data::map_style, data::MapStyleOptions, data::pad_collate, data::tokenized;
using test::numbers_of;
using List = std::vector<std::int64_t>;

// Line i has i * 7 % 50 letters.
std::filesystem::path many_lines(const test::Folder& folder, std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i)
    text += std::string(static_cast<std::size_t>(i * 7 % 50), static_cast<char>('a' + i % 26)) + "\n";
  return test::write_text(folder / "lines.txt", text);
}

std::shared_ptr<Loader> bucketed(const Lines& lines, MapStyleOptions options) {
  options.collate = pad_collate();
  options.lengths = lines.lengths();
  return map_style(tokenized(lines, std::make_shared<data::ByteTokenizer>(), {.labels = at::arange(lines.size())}),
                   options);
}

std::vector<Batch> epoch_of(Loader& loader, std::int64_t epoch) {
  std::vector<Batch> batches;
  loader.seek(epoch, 0);
  while (auto batch = loader.next()) batches.push_back(std::move(*batch));
  return batches;
}

bool same(const Batch& a, const Batch& b) {
  return std::ranges::all_of(a, [&](const auto& item) { return item.second.equal(b[item.first]); });
}

}  // namespace

TEST_CASE("Lines are read by their number, with every kind of end") {
  const test::Folder folder;
  const Lines lines(test::write_text(folder / "lines", "first\n\r\nthird\r\n\nlast"));
  CHECK(lines.size() == 5);
  const std::vector<std::string> texts{"first", "", "third", "", "last"};
  for (std::int64_t i = 0; i < 5; ++i) CHECK(lines.text(i) == texts[static_cast<std::size_t>(i)]);
  CHECK(numbers_of(lines.lengths()) == List{6, 2, 7, 1, 4});
  CHECK(Lines(test::write_text(folder / "one", "\n")).size() == 1);
  CHECK_THROWS_WITH_AS(lines.text(5), doctest::Contains("there is no line 5; lines are from 0 to 4"), DataError);
  CHECK_THROWS_WITH_AS(lines.text(-1), doctest::Contains("there is no line -1"), DataError);
  CHECK_THROWS_WITH_AS(Lines(folder / "none"), doctest::Contains("No such file"), DataError);
  CHECK_THROWS_WITH_AS(Lines(test::write_text(folder / "empty", "")), doctest::Contains("empty: has no lines"),
                       DataError);
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += std::to_string(i) + "\n";  // more than is scanned at once
  const Lines many(test::write_text(folder / "many", text));
  CHECK(many.size() == 400'000);
  for (const std::int64_t i : {0, 1, 9999, 177'777, 399'999}) CHECK(many.text(i) == std::to_string(i));
  std::filesystem::resize_file(folder / "many", 100);
  CHECK_THROWS_WITH_AS(many.text(300'000), doctest::Contains("ends at byte"), DataError);
}

TEST_CASE("Samples of different lengths are padded to the longest, with a mask and targets that are left out") {
  const auto sample = [](const List& tokens, std::int64_t label) {
    const at::Tensor ids = at::tensor(tokens, at::kLong);
    return data::Sample{{"input_ids", ids}, {"target", ids + 10}, {"label", at::scalar_tensor(label, at::kLong)}};
  };
  const Batch batch =
      pad_collate({.pad = 9, .multiple_of = 4})({sample({1, 2}, 5), sample({3, 4, 5, 6, 7}, 6), sample({}, 7)});
  CHECK(numbers_of(batch["input_ids"]) == List{1, 2, 9, 9, 9, 9, 9, 9, 3, 4, 5, 6, 7, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9});
  CHECK(numbers_of(batch["target"][0]) == List{11, 12, -100, -100, -100, -100, -100, -100});
  CHECK(numbers_of(batch["attention_mask"].sum(1)) == List{2, 5, 0});
  CHECK(numbers_of(batch["label"]) == List{5, 6, 7});
  const Batch cut = pad_collate({.max_length = 3, .mask = ""})({sample({1, 2}, 5), sample({3, 4, 5, 6, 7}, 6)});
  CHECK(numbers_of(cut["input_ids"]) == List{1, 2, 0, 3, 4, 5});
  CHECK_FALSE(cut.contains("attention_mask"));
  CHECK_THROWS_WITH_AS(pad_collate({.multiple_of = 0}), doctest::Contains("multiple_of must be >= 1, got 0"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(pad_collate({.names = {}}), doctest::Contains("names must not be empty"), ConfigError);
  CHECK_THROWS_WITH_AS(pad_collate()({data::Sample{{"input_ids", at::zeros({2, 2})}}}),
                       doctest::Contains("\"input_ids\" must be [tokens], got [2, 2]"), DataError);
  CHECK_THROWS_WITH_AS(
      pad_collate()({data::Sample{{"input_ids", at::zeros({2}, at::kLong)}, {"target", at::zeros({3}, at::kLong)}}}),
      doctest::Contains("\"target\" of sample 0 of the batch has the shape [3], and \"input_ids\" has 2 tokens"),
      DataError);
}

TEST_CASE("Lines become tokens with their labels, cut off at max_length") {
  const test::Folder folder;
  const Lines lines(test::write_text(folder / "lines", "abc\nd\n"));
  const auto bytes = std::make_shared<data::ByteTokenizer>();
  const auto source = tokenized(lines, bytes, {.max_length = 2, .labels = at::tensor({7, 8}, at::kLong)});
  CHECK(source.size == 2);
  CHECK(numbers_of(source.get(0, RandomStream(0))["input_ids"]) == List{'a', 'b'});
  CHECK(source.get(1, RandomStream(0))["target"].item<std::int64_t>() == 8);
  CHECK_FALSE(tokenized(lines, bytes).get(0, RandomStream(0)).contains("target"));
  CHECK_THROWS_WITH_AS(tokenized(lines, bytes, {.labels = at::zeros({3})}),
                       doctest::Contains("there are 2 texts, and labels of shape [3]"), DataError);
  const auto texts = tokenized(std::vector<std::string>{"abc", "d"}, bytes, {.max_length = 2});
  CHECK(texts.size == 2);
  CHECK(texts.get(0, RandomStream(0))["input_ids"].equal(source.get(0, RandomStream(0))["input_ids"]));
  CHECK_THROWS_WITH_AS(tokenized(lines, nullptr), doctest::Contains("the tokenizer is null"), ConfigError);
}

TEST_CASE("Batches of buckets have every sample once, and little padding") {
  const test::Folder folder;
  const Lines lines(many_lines(folder, 503));
  const auto padding = [](const std::vector<Batch>& batches) {
    std::int64_t all = 0, used = 0;
    for (const Batch& batch : batches) {
      all += batch["attention_mask"].numel();
      used += batch["attention_mask"].sum().item<std::int64_t>();
    }
    return static_cast<double>(all - used) / static_cast<double>(used);
  };
  const auto loader = bucketed(lines, {.batch_size = 10, .seed = 2});
  for (const std::int64_t epoch : {0, 1, 5}) {
    const std::vector<Batch> batches = epoch_of(*loader, epoch);
    CHECK(batches.size() == 51);
    CHECK(batches.back()["target"].numel() == 3);
    List seen;
    for (const Batch& batch : batches)
      for (const std::int64_t line : numbers_of(batch["target"])) seen.push_back(line);
    std::ranges::sort(seen);
    CHECK(seen == numbers_of(at::arange(503)));
    CHECK(padding(batches) < 0.06);
  }
  const auto plain = map_style(tokenized(lines, std::make_shared<data::ByteTokenizer>(), {.labels = at::arange(503)}),
                               {.batch_size = 10, .collate = pad_collate()});
  CHECK(padding(epoch_of(*plain, 0)) > 0.5);
  CHECK_FALSE(same(epoch_of(*loader, 0)[0], epoch_of(*loader, 1)[0]));
  List widths;
  for (const Batch& batch : epoch_of(*loader, 0)) widths.push_back(batch["input_ids"].size(1));
  CHECK_FALSE(std::ranges::is_sorted(widths));  // batches are in no order of their lengths
  widths.clear();
  for (const Batch& batch : epoch_of(*bucketed(lines, {.batch_size = 10, .shuffle = false}), 0))
    widths.push_back(batch["input_ids"].size(1));
  CHECK(std::ranges::is_sorted(widths));
}

TEST_CASE("Buckets of a run that was stopped anywhere go on as if it was not, with workers and with ranks") {
  const test::Folder folder;
  const Lines lines(many_lines(folder, 97));
  const auto plain = bucketed(lines, {.batch_size = 8, .seed = 3, .bucket_batches = 4});
  const std::vector<std::vector<Batch>> whole{epoch_of(*plain, 0), epoch_of(*plain, 1)};
  for (const std::int64_t workers : {0, 1, 3})
    for (std::int64_t epoch = 0; epoch < 2; ++epoch)
      for (std::size_t from = 0; from <= 13; from += 1) {
        const auto loader = bucketed(lines, {.batch_size = 8, .seed = 3, .num_workers = workers, .bucket_batches = 4});
        loader->seek(epoch, static_cast<std::int64_t>(from));
        for (std::size_t b = from; b < 13; ++b) {
          const auto batch = loader->next();
          REQUIRE(batch);
          CHECK(same(*batch, whole[static_cast<std::size_t>(epoch)][b]));
        }
        CHECK_FALSE(loader->next());
      }
  CHECK(plain->sample_indices(1, 4) == numbers_of(whole[1][4]["target"]));
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const auto loader =
        data::for_rank({.dataloader = bucketed(lines, {.batch_size = 8, .seed = 3, .bucket_batches = 4})}, rank, 2)
            .dataloader;
    loader->seek(1, 4);
    CHECK(numbers_of(loader->next()->at("target")) == numbers_of(whole[1][4]["target"].narrow(0, rank * 4, 4)));
  }
}

TEST_CASE("Lengths that are not those of the samples are refused") {
  const test::Folder folder;
  const Lines lines(many_lines(folder, 9));
  const auto source = tokenized(lines, std::make_shared<data::ByteTokenizer>());
  CHECK_THROWS_WITH_AS(
      map_style(source, {.batch_size = 2, .lengths = at::ones({8})}),
      doctest::Contains("map_style: lengths must have one number for each of 9 samples, got the shape [8]"), DataError);
  CHECK_THROWS_WITH_AS(map_style(source, {.batch_size = 2, .lengths = at::ones({9}), .bucket_batches = 0}),
                       doctest::Contains("bucket_batches must be from 1"), ConfigError);
}

}  // namespace composer::lines_test

#include "composer/data/rank_slice.h"

#include <limits>
#include <random>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "tests/support/doctest.h"
#include "tests/support/warnings.h"

namespace composer::rank_slice_test {

using data::rank_slice;
using data::RankSlice;
using data::slice_batch;

namespace {

Batch numbered(std::int64_t samples) {
  return {{"input", at::arange(samples * 3).view({samples, 3})}, {"target", at::arange(samples)}};
}

// Samples of one or more rows: "length" has a row per sample, "tokens" the rows of all samples one after another.
Batch packed(std::int64_t samples) {
  const at::Tensor length = at::arange(samples).remainder(3).add(1);
  return {{"length", length}, {"tokens", at::arange(length.sum().item<std::int64_t>())}};
}

DataSpec packed_spec() {
  DataSpec spec;
  spec.get_num_samples_in_batch = [](const Batch& batch) { return batch["length"].size(0); };
  spec.split_batch = [](const Batch& batch, std::int64_t size) {
    std::vector<Batch> parts;
    std::int64_t row = 0;
    for (const at::Tensor& length : batch["length"].split(size)) {
      const std::int64_t rows = length.sum().item<std::int64_t>();
      parts.push_back({{"length", length}, {"tokens", batch["tokens"].slice(0, row, row + rows)}});
      row += rows;
    }
    return parts;
  };
  return spec;
}

}  // namespace

TEST_CASE("Slices of ranks cover all samples once, in order, and differ by at most one sample") {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 20000; ++trial) {
    const auto samples = static_cast<std::int64_t>(random() % (trial % 2 ? 50 : 1'000'000'000'000));
    const auto world_size = static_cast<std::int64_t>(1 + random() % 40);
    std::int64_t end = 0, least = samples, most = 0;
    bool in_order = true;
    for (std::int64_t rank = 0; rank < world_size; ++rank) {
      const RankSlice slice = rank_slice(samples, rank, world_size);
      in_order = in_order && slice.begin == end && slice.size() >= 0;
      end = slice.end;
      least = std::min(least, slice.size());
      most = std::max(most, slice.size());
    }
    CAPTURE(samples);
    CAPTURE(world_size);
    REQUIRE(in_order);
    REQUIRE(end == samples);
    REQUIRE(most - least <= 1);
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(rank_slice(kMost, 6, 7).end == kMost);
  CHECK(rank_slice(3, kMost - 1, kMost) == RankSlice{3, 3});
}

TEST_CASE("A slice of a rank that does not exist is refused with the value") {
  CHECK_THROWS_WITH_AS(rank_slice(4, 2, 2), "rank_slice: rank must be from 0 to 1, got 2", ConfigError);
  CHECK_THROWS_WITH_AS(rank_slice(4, -1, 2), "rank_slice: rank must be from 0 to 1, got -1", ConfigError);
  CHECK_THROWS_WITH_AS(rank_slice(4, 0, 0), "rank_slice: world_size must be >= 1, got 0", ConfigError);
  CHECK_THROWS_WITH_AS(rank_slice(-4, 0, 1), "rank_slice: the number of samples must be >= 0, got -4", DataError);
}

TEST_CASE("A batch is sliced into views without a warning, and an empty slice keeps names, types and shapes") {
  test::Warnings warnings;
  for (std::int64_t samples : {1, 2, 5, 8})
    for (std::int64_t world_size : {1, 2, 3, 4, 7}) {
      Batch batch = numbered(samples);
      batch.set("weight", at::scalar_tensor(0.5));
      for (std::int64_t rank = 0; rank < world_size; ++rank) {
        const auto [begin, end] = rank_slice(samples, rank, world_size);
        const Batch slice = slice_batch(batch, {}, rank, world_size);
        REQUIRE(slice.size() == 3);
        CHECK(slice["input"].equal(batch["input"].slice(0, begin, end)));
        CHECK(slice["input"].sizes() == at::IntArrayRef({end - begin, 3}));
        CHECK((slice["target"].scalar_type() == at::kLong));
        CHECK(slice["target"].equal(batch["target"].slice(0, begin, end)));
        CHECK(slice["weight"].is_same(batch["weight"]));
        CHECK(slice["input"].storage().is_alias_of(batch["input"].storage()));
      }
    }
  CHECK(warnings.texts.empty());
}

TEST_CASE("A batch of another structure is sliced by the functions of its DataSpec, each sample once") {
  const DataSpec spec = packed_spec();
  for (std::int64_t samples = 1; samples <= 17; ++samples)
    for (std::int64_t world_size = 1; world_size <= 9; ++world_size) {
      CAPTURE(samples);
      CAPTURE(world_size);
      const Batch batch = packed(samples);
      std::vector<at::Tensor> lengths, tokens;
      for (std::int64_t rank = 0; rank < world_size; ++rank) {
        const Batch slice = slice_batch(batch, spec, rank, world_size);
        CHECK(slice["length"].size(0) == rank_slice(samples, rank, world_size).size());
        CHECK(slice["tokens"].size(0) == slice["length"].sum().item<std::int64_t>());
        CHECK(slice["tokens"].storage().is_alias_of(batch["tokens"].storage()));
        lengths.push_back(slice["length"]);
        tokens.push_back(slice["tokens"]);
      }
      CHECK(at::cat(lengths).equal(batch["length"]));
      CHECK(at::cat(tokens).equal(batch["tokens"]));
    }
}

TEST_CASE("A batch that cannot be sliced is refused: other lengths, or a split_batch that gives other parts") {
  const Batch uneven{{"input", at::zeros({4, 2})}, {"target", at::zeros(3)}};
  CHECK_THROWS_WITH_AS(slice_batch(uneven, {}, 0, 2), doctest::Contains("must have the same length"), DataError);
  DataSpec whole;
  whole.split_batch = [](const Batch& batch, std::int64_t) { return std::vector<Batch>{batch}; };
  CHECK_THROWS_WITH_AS(slice_batch(numbered(4), whole, 0, 2), doctest::Contains("part 0 has 4 samples instead of 2"),
                       DataError);
  CHECK_THROWS_WITH_AS(slice_batch(numbered(4), whole, 1, 2), doctest::Contains("gave 1 parts of at most 2 samples"),
                       DataError);
  DataSpec counted;  // but not split
  counted.get_num_samples_in_batch = [](const Batch&) { return 4; };
  CHECK_THROWS_AS(slice_batch(uneven, counted, 0, 2), DataError);
}

}  // namespace composer::rank_slice_test

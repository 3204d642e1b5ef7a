#include "composer/trainer/batch_source.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/trainer/ranks.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/support/doctest.h"

namespace composer::test::batch_source_test {
namespace {

// Epochs of `length` batches, each of which says where it is from; notes where it is sent.
struct Places final : Loader {
  explicit Places(std::int64_t batches) : length(batches) {}
  void seek(std::int64_t to_epoch, std::int64_t to_batch) override {
    epoch = to_epoch;
    batch = to_batch;
    sought += std::to_string(epoch) + "." + std::to_string(batch) + " ";
  }
  std::optional<Batch> next() override {
    if (batch == length) return std::nullopt;
    return Batch{{"from", at::tensor({epoch * 100 + batch++})}};
  }
  std::optional<std::int64_t> num_batches() const override { return length; }

  std::int64_t length, epoch = 0, batch = 0;
  std::string sought;
};

std::int64_t from(const std::optional<Batch>& batch) { return batch ? batch->at("from").item<std::int64_t>() : -1; }

using dist::test::results_in_ranks;

const auto kKeep = [] {};

TEST_CASE("A loader is placed once, and again when somebody else has moved it") {
  const auto loader = std::make_shared<Places>(3);
  BatchSource source(Feed(AnyDataSpec(loader), "train", -1));
  CHECK(source.epoch_length() == 3);
  CHECK(from(source.next(2, 1, kKeep)) == 201);
  CHECK(from(source.next(2, 2, kKeep)) == 202);
  CHECK(loader->sought == "2.1 ");
  CHECK(from(source.next(2, 3, kKeep)) == -1);
  source.lose_place();
  CHECK(from(source.next(3, 0, kKeep)) == 300);
  loader->seek(0, 0);
  source.lose_place_of(loader.get());
  CHECK(from(source.next(3, 1, kKeep)) == 301);
  const Places other(1);
  source.lose_place_of(&other);
  CHECK(from(source.next(3, 2, kKeep)) == 302);
  CHECK(loader->sought == "2.1 3.0 0.0 3.1 ");
}

TEST_CASE("The batch is the one asked for, also if that is not the next of the loader") {
  const auto loader = std::make_shared<Places>(3);
  BatchSource source(Feed(AnyDataSpec(loader), "train", -1));
  for (const std::int64_t batch : {0, 1, 0, 2}) CHECK(from(source.next(0, batch, kKeep)) == batch);
  CHECK(from(source.next(1, 2, kKeep)) == 102);
  CHECK(loader->sought == "0.0 0.0 0.2 1.2 ");
}

// As those that put samples of one length together: the second epoch has other batches than the first.
struct Buckets final : Loader {
  void seek(std::int64_t to_epoch, std::int64_t to_batch) override { epoch = to_epoch, batch = to_batch; }
  std::optional<Batch> next() override {
    if (batch == *num_batches()) return std::nullopt;
    return Batch{{"from", at::tensor({epoch * 100 + batch++})}};
  }
  std::optional<std::int64_t> num_batches() const override { return lengths[epoch]; }
  std::vector<std::int64_t> lengths = {2, 4, 1};
  std::int64_t epoch = 0, batch = 0;
};

TEST_CASE("An epoch ends after the batches that it has itself, more or fewer than the one before") {
  const auto loader = std::make_shared<Buckets>();
  BatchSource source(Feed(AnyDataSpec(loader), "train", 3));
  for (const std::int64_t epoch : {0, 1, 2}) {
    CAPTURE(epoch);
    const std::int64_t length = std::min<std::int64_t>(loader->lengths[epoch], 3);
    for (std::int64_t batch = 0; batch < length; ++batch)
      CHECK(from(source.next(epoch, batch, kKeep)) == epoch * 100 + batch);
    CHECK(source.epoch_length() == length);
    CHECK(from(source.next(epoch, length, kKeep)) == -1);
    source.lose_place();
  }
}

TEST_CASE("The last batch is let go before the next is taken, and kept where there may be none") {
  const auto loader = std::make_shared<Places>(2);
  BatchSource source(Feed(AnyDataSpec(loader), "train", -1));
  int released = 0;
  const auto release = [&] { ++released; };
  source.next(0, 0, release);
  source.next(0, 1, release);
  CHECK(released == 2);
  CHECK_FALSE(source.next(0, 2, release));
  CHECK(released == 2);
}

TEST_CASE("A given batch comes once and is counted; the loader stays where it is") {
  const auto loader = std::make_shared<Places>(3);
  BatchSource source(Feed(AnyDataSpec(loader), "train", -1));
  source.give({{"from", at::tensor({7, 8})}});
  CHECK(source.has_given());
  const auto given = source.next(0, 0, kKeep);
  REQUIRE(given);
  CHECK(given->at("from").size(0) == 2);
  CHECK(source.feed().samples() == 2);
  CHECK_FALSE(source.has_given());
  CHECK(loader->sought.empty());
  source.give({{"from", at::tensor({9})}});
  source.take_back();
  CHECK(from(source.next(0, 0, kKeep)) == 0);
}

TEST_CASE("An epoch without a batch is an error that says which") {
  BatchSource source(Feed(AnyDataSpec(std::make_shared<Places>(0)), "train", -1));
  CHECK_THROWS_WITH_AS(source.next(4, 0, kKeep), doctest::Contains("epoch 4 has no batch"), DataError);
}

TEST_CASE("Without a loader no epoch has a length") {
  BatchSource source{Feed()};
  CHECK_FALSE(source.has_loader());
  CHECK_FALSE(source.epoch_length());
}

TEST_CASE("Where each rank has a loader of its own, those that run out of batches get some without a sample") {
  const auto samples = results_in_ranks(2, [](const std::shared_ptr<dist::World>& world) {
    const Ranks ranks(world, {.split_batches = false});
    const auto loader = std::make_shared<Places>(ranks.first() ? 1 : 3);
    BatchSource source(Feed(AnyDataSpec(loader), "train", -1), ranks, 3);
    State state;
    std::vector<std::int64_t> samples;
    for (state.timestamp.epoch = 0; state.timestamp.epoch < 2; ++state.timestamp.epoch) {
      state.timestamp.batch_in_epoch = 0;
      while (source.read(state, state.timestamp.epoch, kKeep)) {
        samples.push_back(state.batch.at("from").size(0));
        ++state.timestamp.batch_in_epoch;
      }
    }
    CHECK(state.dataloader_len == 3);
    return samples;
  });
  CHECK(samples[0] == std::vector<std::int64_t>{1, 0, 0, 1, 0, 0});
  CHECK(samples[1] == std::vector<std::int64_t>{1, 1, 1, 1, 1, 1});
}

}  // namespace
}  // namespace composer::test::batch_source_test

// What each part of a batch counts in it, on one rank and among others.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/model.h"
#include "composer/step/microbatches.h"
#include "tests/support/doctest.h"

namespace composer::test::microbatch_shares_test {
namespace {

// The loss of a batch is a mean over its "weight".
struct Weighed final : Model {
  Outputs forward(const Batch& batch) override { return batch["weight"]; }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().mean(); }
  LossWeight loss_weight(const Batch& batch) const override {
    ++asked;
    return batch["weight"].sum();
  }
  mutable int asked = 0;
};

State state_with(const std::vector<double>& weights, std::int64_t microbatch_size) {
  State state;
  state.model = Handle<Model>(std::make_shared<Weighed>());
  state.device_train_microbatch_size = microbatch_size;
  state.batch.set("weight", at::tensor(weights, at::kDouble));
  return state;
}

// Two ranks that have the same, or one of them with shards.
struct Two final : BatchRanks {
  bool alone() const override { return false; }
  BatchCounts start(const BatchCounts& own, bool changes) override {
    ++starts;
    may_change = changes;
    BatchCounts all = own;
    all.weight = own.weight * 2;
    return all;
  }
  std::optional<std::vector<Shard>> shards(const Feed&, const Batch&) const override { return given; }
  void enter_shard(std::int64_t index) override { entered.push_back(index); }

  std::optional<std::vector<Shard>> given;
  int starts = 0;
  bool may_change = false;
  std::vector<std::int64_t> entered;
};

const Feed kFeed{};

// The samples and the share of each part, as it is trained.
std::vector<std::string> parts_of(State& state, Microbatches& parts, BatchRanks& ranks) {
  std::vector<std::string> seen;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts.enter(kFeed, ranks, i);
    seen.push_back(join(state.batch["weight"].size(0), ": ", parts.share().number(), parts.counts() ? "" : " nothing",
                        parts.is_first() ? " first" : "", parts.is_last() ? " last" : ""));
  }
  return seen;
}

using Texts = std::vector<std::string>;

TEST_CASE("Parts count by their share of the weight, and the last one that has weight is the last") {
  State state = state_with({1, 1, 2, 4, 0}, 2);
  BatchRanks alone;
  Microbatches parts(state, /*weigh_by_tokens=*/false);
  parts.take_batch();
  parts.split(kFeed, alone);
  CHECK_FALSE(parts.are_weighed());
  CHECK(parts_of(state, parts, alone) == Texts{"2: 0.25 first", "2: 0.75 last", "1: 0 nothing"});
  CHECK(parts.of_all_ranks().weight.number() == 8);
  CHECK(parts.of_all_ranks().microbatches == 3);
  parts.leave();
  CHECK(state.batch["weight"].size(0) == 5);
}

TEST_CASE("A batch that is not split counts as a whole") {
  State state = state_with({1, 2, 3}, 0);
  BatchRanks alone;
  Microbatches parts(state, false);
  parts.take_batch();
  parts.split(kFeed, alone);
  CHECK(parts_of(state, parts, alone) == Texts{"3: 1 first last"});
}

TEST_CASE("Shares are of what all ranks have, who are asked once, however often the parts are trained") {
  State state = state_with({1, 1, 2}, 2);
  Two ranks;
  Microbatches parts(state, false);
  parts.take_batch();
  parts.split(kFeed, ranks);
  parts.weigh(kFeed, ranks, Seconds(3));
  const Texts first = parts_of(state, parts, ranks), again = parts_of(state, parts, ranks);
  CHECK(first == Texts{"2: 0.25 first", "1: 0.25 last"});
  CHECK(again == first);
  CHECK(ranks.starts == 1);
  CHECK_FALSE(ranks.may_change);
  CHECK(parts.of_all_ranks().seconds == 3);
  CHECK(static_cast<const Weighed&>(*state.model).asked == 2);
}

TEST_CASE("Ranks are told of a part without weight") {
  State state = state_with({1, 0}, 1);
  Two ranks;
  Microbatches parts(state, false);
  parts.take_batch();
  parts.split(kFeed, ranks);
  parts.weigh(kFeed, ranks);
  CHECK(ranks.may_change);
}

TEST_CASE("Shards are slices of the batch, each of which adds its losses to nothing") {
  State state = state_with({1, 1, 2}, 0);
  Two ranks;
  ranks.given = {{4, 2}, {6, 1}};
  Microbatches parts(state, false);
  parts.take_batch();
  parts.split(kFeed, ranks);
  CHECK(parts_of(state, parts, ranks) == Texts{"2: 0.25 first", "1: 0.25 first last"});
  CHECK(ranks.entered == std::vector<std::int64_t>{4, 6});
}

TEST_CASE("A rank to which no samples fall has no parts, and is weighed all the same") {
  State state = state_with({}, 0);
  Two ranks;
  ranks.given.emplace();
  Microbatches parts(state, false);
  parts.take_batch();
  parts.split(kFeed, ranks);
  parts.weigh(kFeed, ranks);
  CHECK(parts.size() == 0);
  CHECK(parts.of_all_ranks().weight.is(0));
  CHECK(ranks.starts == 1);
}

TEST_CASE("What is tried counts as half of the batch, whatever its weight") {
  State state = state_with({0, 0, 1}, 0);
  Microbatches parts(state, false);
  parts.take_batch();
  const Batch part = kFeed.rules().split(parts.whole(), 2).front();
  for (const bool first : {true, false}) {
    parts.enter_trial(kFeed, part, first);
    CHECK(state.batch["weight"].size(0) == 2);
    CHECK(parts.share().is(0.5));
    CHECK(parts.is_first() == first);
  }
}

}  // namespace
}  // namespace composer::test::microbatch_shares_test
